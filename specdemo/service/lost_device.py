"""Whether the GPUs of this process still answer: after some errors none does, until the process ends."""

import torch


def devices_answer() -> bool:
    """Ask each GPU in use for one number; True where none is in use."""
    if not torch.cuda.is_initialized():
        return True
    try:
        everywhere = range(torch.cuda.device_count())
        used = [index for index in everywhere if torch.cuda.memory_reserved(index)]
        for index in used or [torch.cuda.current_device()]:
            torch.ones(1, device=f"cuda:{index}").item()
    except torch.OutOfMemoryError:
        return True
    except RuntimeError:
        return False
    return True

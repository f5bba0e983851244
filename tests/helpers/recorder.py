"""A recorder that calls the recorded function instead of replaying it."""

from specdemo.models.fused_execution import GraphedExecution
from specdemo.models.fused_llama import FusedLlama


class Recorder:
    """Replays into the same tensors every time, as a device does."""

    def __init__(self):
        self.recorded = self.replayed = 0

    def __call__(self, run):
        self.recorded += 1
        outputs = run()

        def replay():
            self.replayed += 1
            for old, new in zip(outputs, run(), strict=True):
                if old is not None:
                    old.copy_(new)
            return outputs

        return replay


def recorded(model: FusedLlama, record) -> FusedLlama:
    model.execution = GraphedExecution(model, record)
    return model

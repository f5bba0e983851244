"""Simulated devices: tensors on the CPU with device labels that must not be mixed."""

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

CPU = torch.device("cpu")


class Labelled(torch.Tensor):
    label: torch.device


class Labels(TorchFunctionMode):
    """While active, tensors created for a device have its label, and no operation may mix two labels.

    A tensor without dimensions may meet any other, as on real devices.
    """

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if function == torch.Tensor.device.__get__:
            return getattr(args[0], "label", CPU)
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        wanted = self._destination(function, args, kwargs)
        met = {getattr(tensor, "label", CPU) for tensor in tensors if tensor.dim()}
        if len(met) > 1:
            raise RuntimeError(f"{function.__name__} of tensors on different devices: {met}")
        label = wanted or next(iter(met), next((getattr(t, "label", CPU) for t in tensors), CPU))
        if "device" in kwargs:
            kwargs["device"] = CPU
        args = tuple(CPU if isinstance(arg, torch.device) else arg for arg in args)
        with torch._C.DisableTorchFunctionSubclass():
            found = function(*tree_map(_bare, args), **tree_map(_bare, kwargs))
        return tree_map(lambda leaf: _with(leaf, label) if isinstance(leaf, torch.Tensor) else leaf, found)

    @staticmethod
    def _destination(function, args, kwargs) -> torch.device | None:
        devices = [kwargs.get("device"), *args]
        named = [torch.device(d) for d in devices if isinstance(d, str | torch.device) and d is not None]
        return named[0] if named else None


def _bare(leaf):
    return leaf.as_subclass(torch.Tensor) if isinstance(leaf, Labelled) else leaf


def _with(tensor: torch.Tensor, label: torch.device) -> torch.Tensor:
    labelled = tensor.as_subclass(Labelled)
    labelled.label = label
    return labelled

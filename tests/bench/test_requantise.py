"""A file in Q4_0: the same model, rounded anew, whole or not there."""

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter, LlamaFileType
from gguf.quants import dequantize, quantize

from specdemo.bench.requantise import BLOCK, to_q4_0

Q4_0, Q4_1, Q8_0, F32 = (GGMLQuantizationType[name] for name in ("Q4_0", "Q4_1", "Q8_0", "F32"))
ROWS, WIDTH = 6, 3 * BLOCK
OWN = ("general.file_type", "GGUF.kv_count")
"""What the two files say differently: their type, and how much they say."""


def blocks(seed):
    """Rows whose blocks hold one largest number of either sign, so that none lies past the format's end."""
    noise = np.random.default_rng(seed)
    values = noise.uniform(-0.8, 0.8, (ROWS, WIDTH // BLOCK, BLOCK))
    values[..., 0] = noise.choice([-1, 1], values.shape[:2])
    return values.reshape(ROWS, WIDTH).astype(np.float32)


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "tiny.Q4_1.gguf"
    writer = GGUFWriter(path, "llama")
    writer.add_name("tiny")
    writer.add_block_count(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_file_type(LlamaFileType.MOSTLY_Q4_1)
    writer.add_add_bos_token(False)
    writer.add_token_list(["a", "Ġb", "é"])
    writer.add_token_types([3, 1, 1])
    for number, (name, kind) in enumerate((("token_embd.weight", Q8_0), ("blk.0.ffn_up.weight", Q4_1))):
        writer.add_tensor(name, quantize(blocks(number), kind), raw_dtype=kind)
    writer.add_tensor("blk.0.attn_norm.weight", np.linspace(0.1, 2, WIDTH, dtype=np.float32))
    writer.add_tensor("blk.0.narrow.weight", np.ones((ROWS, BLOCK // 2), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def tensors(path):
    return {tensor.name: tensor for tensor in GGUFReader(path).tensors}


def test_matrices_are_rounded_by_half_a_step_at_most_and_the_rest_stays(source, tmp_path):
    before, after = tensors(source), tensors(to_q4_0(source, tmp_path / "tiny.Q4_0.gguf"))
    assert list(after) == list(before)
    for name in ("token_embd.weight", "blk.0.ffn_up.weight"):
        assert after[name].tensor_type == Q4_0 and list(after[name].shape) == list(before[name].shape)
        old, new = (dequantize(t.data, t.tensor_type) for t in (before[name], after[name]))
        step = np.abs(old.reshape(-1, BLOCK)).max(1) / 8
        error = np.abs(new - old).reshape(-1, BLOCK).max(1)
        assert (error <= 0.51 * step).all(), "a scale is stored in fp16, which adds a little to half a step"
        assert error.max() > 0
    for name in ("blk.0.attn_norm.weight", "blk.0.narrow.weight"):
        assert after[name].tensor_type == F32
        np.testing.assert_array_equal(after[name].data, before[name].data)


def test_what_the_file_says_of_the_model_is_kept(source, tmp_path):
    before, after = (GGUFReader(path).fields for path in (source, to_q4_0(source, tmp_path / "new.gguf")))
    assert after.keys() == before.keys()
    for name in before.keys() - set(OWN):
        assert (after[name].contents(), after[name].types) == (before[name].contents(), before[name].types)
    assert after["general.file_type"].contents() == LlamaFileType.MOSTLY_Q4_0


def test_the_file_is_made_once_and_whole_or_not_at_all(source, tmp_path, monkeypatch):
    path = to_q4_0(source, tmp_path / "new.gguf")
    monkeypatch.setattr("specdemo.bench.requantise.quantize", lambda *arguments: 1 / 0)
    assert to_q4_0(source, path) == path
    with pytest.raises(ZeroDivisionError):
        to_q4_0(source, tmp_path / "other.gguf")
    assert {file.name for file in tmp_path.iterdir()} == {source.name, path.name}

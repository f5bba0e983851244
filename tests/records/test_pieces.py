"""Pieces are the bytes of the tokens, for every family of tokenizers."""

import base64

from helpers.tiny import byte_tokenizer
from helpers.tiny_runs import decode_pieces
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

from specdemo.records.pieces import PieceTable, StreamDecoder


def test_bytes_of_split_characters_stay_separate_and_join_to_the_text():
    tokenizer = byte_tokenizer()
    table = PieceTable(tokenizer)
    text = "naïve 日本 🎉\n\t"
    ids = tokenizer(text)["input_ids"]
    assert b"".join(map(table.piece, ids)) == text.encode()
    assert all(len(table.piece(token)) == 1 for token in ids)
    assert decode_pieces(table.encoded(ids), ids) == table.text(ids) == text


def test_a_stream_shows_a_character_once_it_is_complete():
    decoder = StreamDecoder()
    assert [decoder.feed(bytes([byte])) for byte in "🎉".encode()] == ["", "", "", "🎉"]
    decoder.feed(b"\xf0")
    assert decoder.flush() == "\ufffd"


def test_control_tokens_show_their_name_and_unknown_rows_nothing():
    table = PieceTable(byte_tokenizer())
    assert table.piece(1) == b"</s>" and 1 in table.specials
    assert table.piece(100_000) == b""


def test_sentencepiece_style_names_become_spaces_and_bytes():
    backend = Tokenizer(models.BPE({"▁the": 0, "<0xE2>": 1, "x": 2}, []))
    backend.decoder = decoders.Metaspace()
    table = PieceTable(PreTrainedTokenizerFast(tokenizer_object=backend))
    assert [table.piece(i) for i in range(3)] == [b" the", b"\xe2", b"x"]
    assert table.encoded([1]) == {1: base64.b64encode(b"\xe2").decode()}

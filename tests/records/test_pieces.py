"""Pieces are the bytes of the tokens, for every family of tokenizers."""

import base64

import pytest
from helpers.tiny import byte_tokenizer
from helpers.tiny_runs import decode_pieces
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from specdemo.records.limits import UserError
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


def words(model, decoder):
    backend = Tokenizer(model)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    if decoder:
        backend.decoder = decoder
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="[UNK]")


VOCABULARY = {"[UNK]": 0, "hello": 1, "world": 2, ",": 3, "the": 4, "qu": 5, "##i": 6, "##ck": 7}
ENDINGS = {"[UNK]": 0, "hello</w>": 1, "world</w>": 2, ",</w>": 3, "the</w>": 4, "qu": 5, "ick</w>": 6}
DECODERS = {
    "WordPiece": words(models.WordPiece(VOCABULARY, unk_token="[UNK]"), decoders.WordPiece()),
    "word endings": words(models.WordLevel(ENDINGS, unk_token="[UNK]"), decoders.BPEDecoder()),
    "none": words(models.WordLevel(VOCABULARY, unk_token="[UNK]"), None),
}


@pytest.mark.parametrize("name", DECODERS)
def test_words_stay_apart_as_the_tokenizer_decodes_them(name):
    tokenizer = DECODERS[name]
    ids = list(range(1, len(tokenizer)))
    assert PieceTable(tokenizer).text(ids).strip() == tokenizer.decode(ids).strip()
    assert " world" in tokenizer.decode(ids)


def test_a_tokenizer_whose_tokens_depend_on_their_neighbours_is_refused():
    tokenizer = words(models.WordLevel({"[UNK]": 0, "the": 1, "Hello": 2}, unk_token="[UNK]"), decoders.CTC())
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.add_tokens(["e", "l", "o"])
    with pytest.raises(UserError, match="cannot show text token by token; choose another target"):
        PieceTable(tokenizer)


@pytest.mark.parametrize("added", ["café", "naïve", "日本", "plain"])
def test_an_added_token_of_a_byte_level_vocabulary_shows_its_own_letters(added):
    tokenizer = byte_tokenizer()
    tokenizer.add_tokens([added])
    ids = tokenizer(f"a {added}é")["input_ids"]
    assert len(ids) == 5
    assert PieceTable(tokenizer).text(ids) == f"a {added}é"

"""tokenize and detokenize against the library that defines tokenizer.json.

Small tokenizers of every kind are trained here, on text made by rule. With AC_TEST_LONG=1 there are
100,000 texts for each tokenizer; AC_TOKENIZERS names a folder of folders with a tokenizer.json, which
are tested too.
"""

import json
import os
import random
import subprocess
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"

import pytest
from compiled import PROGRAM, program
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from variants import LONG

COUNT = 100_000 if LONG else 1500
SPLITS = {
    "llama3": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+",
    "o200k": r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+",
    "deepseek": r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    # What Oniguruma reads in its own way: &&, sets in sets, {1,2}+, \h, (?m), \w, ^ and $.
    "oniguruma": r"[\p{Han}]+|[\p{L}&&[^\p{Han}a-m]]+|[a[bc]]{1,2}+|\h+|^\s+$|\w+|(?m:\W.)",
}
SPECIAL = ["<|end|>", "<|start|>", "<mask>"]
# Characters that all of the library's tables agree on, whatever their age.
OLD = [(0x21, 0x17F), (0x370, 0x3FF), (0x400, 0x481), (0x5D0, 0x5EA), (0x620, 0x652), (0x905, 0x94D)]
OLD += [(0xE01, 0xE2E), (0x1E00, 0x1EFF), (0x2010, 0x2046), (0x20A0, 0x20BE)]
OLD += [(0x3041, 0x30FF), (0x4E00, 0x4EFF), (0xAC00, 0xACFF), (0xFB00, 0xFB06), (0xFF01, 0xFF5E)]
OLD += [(0x1D400, 0x1D454), (0x1F600, 0x1F640), (0x300, 0x34E)]


def words() -> list:
    """A language without foreign text: syllables of several scripts, common ones more often."""
    draw = random.Random(1)
    syllables = "ka to mi ren al sho en ble ing er ed un pre tion é ø ß да не ка ма του λο 日 本 語 한 국 ת ש हि".split()
    made = ["".join(draw.choices(syllables, k=draw.randint(1, 4))) for _ in range(400)]
    return made + [w.capitalize() for w in made[:100]] + "I'll don't WE'RE 12 1234567 3.14 x_1 a-b".split()


WORDS = words()


def corpus() -> list:
    draw = random.Random(2)
    ends = [" ", " ", " ", ", ", ". ", "\n", "\n\n", "  ", "\t", "! "]
    return [
        "".join(draw.choice(WORDS[: draw.choice([20, 100, len(WORDS)])]) + draw.choice(ends) for _ in range(20))
        for _ in range(400)
    ]


def texts(count, seed, old=False, special=SPECIAL) -> list:
    draw = random.Random(seed)

    def character() -> str:
        kind = draw.random()
        if kind < 0.3:
            return chr(draw.randrange(0x20, 0x7F))
        if kind < 0.45:
            return draw.choice(" \n\t\r\u00a0\u2003\u3000" + ("" if old else "\x85\u200b\u180e\ufeff\x00"))
        if old:
            return chr(draw.randint(*draw.choice(OLD)))
        if kind < 0.7:
            return chr(draw.randrange(0x80, 0x3000))
        code = draw.randrange(0x110000)
        return "?" if 0xD800 <= code < 0xE000 else chr(code)

    def text() -> str:
        parts = draw.choice([[character], [lambda: draw.choice(WORDS)], [character, lambda: draw.choice(WORDS)]])
        if special and draw.random() < 0.3:
            parts = [*parts, lambda: draw.choice(special)]
        gaps = draw.choice([[""], [" "], ["", " ", "  ", "\n"]])
        return "".join(draw.choice(parts)() + draw.choice(gaps) for _ in range(draw.randint(0, 24)))

    fixed = ["", " ", "  ", "\n", "\r\n\r\n", "a" * 200, " " * 100 + "x", "é", "e\u0301", "\u0301", "ﬁ\u00bdⅧ", "İIı", "👩‍👩‍👧"]
    return fixed + [text() for _ in range(count - len(fixed))]


def bpe(normalizer=None, pre=None, decoder=None, post=None, byte_level=True, **options):
    tokenizer = Tokenizer(models.BPE(**options))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    if pre is not None:
        tokenizer.pre_tokenizer = pre
    if decoder is not None:
        tokenizer.decoder = decoder
    alphabet = pre_tokenizers.ByteLevel.alphabet() if byte_level else []
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)] if options.get("byte_fallback") else []
    unknown = [options["unk_token"]] if "unk_token" in options else []
    trainer = trainers.BpeTrainer(
        vocab_size=900,
        special_tokens=unknown + bytes_ + SPECIAL[:1],
        initial_alphabet=alphabet,
        show_progress=False,
        end_of_word_suffix=options.get("end_of_word_suffix", ""),
        continuing_subword_prefix=options.get("continuing_subword_prefix", ""),
    )
    return trained(tokenizer, trainer, post)


def trained(tokenizer, trainer, post=None):
    tokenizer.train_from_iterator(corpus(), trainer)
    tokenizer.add_special_tokens([AddedToken(SPECIAL[1], rstrip=True), AddedToken(SPECIAL[2], lstrip=True)])
    tokenizer.add_tokens([AddedToken("kato", single_word=True), AddedToken("Tomi", normalized=True), "  "])
    if post is not None:
        tokenizer.post_processor = post
    return tokenizer


def byte_level(split, normalizer=None, **options):
    pre = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLITS[split]), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    return bpe(normalizer, pre, decoders.ByteLevel(), **options)


def template(tokenizer):
    begin = tokenizer.token_to_id(SPECIAL[0])
    end = tokenizer.token_to_id(SPECIAL[1])
    tokenizer.post_processor = processors.Sequence(
        [
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(
                single=f"{SPECIAL[0]} $A {SPECIAL[1]}:1",
                pair=f"{SPECIAL[0]} $A {SPECIAL[1]} $B",
                special_tokens=[(SPECIAL[0], begin), (SPECIAL[1], end)],
            ),
        ]
    )
    return tokenizer


def llama2():
    return bpe(
        normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]),
        None,
        decoders.Sequence(
            [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
        ),
        byte_level=False,
        unk_token="<unk>",
        byte_fallback=True,
        fuse_unk=True,
    )


def unigram(pre, normalizer=None, **options):
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=600, special_tokens=["<unk>", SPECIAL[0]], unk_token="<unk>", show_progress=False, **options
    )
    state = json.loads(trained(tokenizer, trainer).to_str())
    # Scores whose sums are exact: else rounding, and the library's own reading of decimals, decide
    # between tokens in one order and in another.
    vocabulary = state["model"]["vocab"]
    state["model"]["vocab"] = [[token, round(score * 256) / 256] for token, score in vocabulary]
    return Tokenizer.from_str(json.dumps(state))


def word_piece(cleanup):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=20))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(cleanup=cleanup)
    trainer = trainers.WordPieceTrainer(
        vocab_size=700, special_tokens=["[UNK]", "[CLS]", "[SEP]", SPECIAL[0]], show_progress=False
    )
    return trained(tokenizer, trainer, processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1)))


def cut_by(pre, split_first=True):
    """A pre-tokenizer by itself: characters are tokens, and words of the corpus."""
    tokenizer = Tokenizer(models.WordLevel(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre
    trainer = trainers.WordLevelTrainer(vocab_size=800, special_tokens=["<unk>", SPECIAL[0]], show_progress=False)
    return trained(tokenizer, trainer, processors.RobertaProcessing(("<unk>", 0), (SPECIAL[0], 1)))


# What each is made of, and whether the library's tables for it are of an old Unicode.
KINDS = {
    "gpt2": (lambda: template(bpe(None, pre_tokenizers.ByteLevel(add_prefix_space=True), decoders.ByteLevel())), False),
    "llama3": (lambda: template(byte_level("llama3", ignore_merges=True)), False),
    "o200k": (lambda: byte_level("o200k"), False),
    "deepseek": (lambda: byte_level("deepseek"), False),
    "oniguruma": (lambda: byte_level("oniguruma"), False),
    "qwen": (lambda: byte_level("llama3", normalizers.NFC()), False),
    "bytes_first": (lambda: bpe(normalizers.ByteLevel(), None, decoders.ByteLevel()), False),
    "clip": (
        lambda: bpe(
            normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()]),
            pre_tokenizers.Sequence(
                [
                    pre_tokenizers.Split(Regex(r"'s|'t|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"), "removed", invert=True),
                    pre_tokenizers.ByteLevel(add_prefix_space=False),
                ]
            ),
            decoders.BPEDecoder("</w>"),
            unk_token="<unk>",
            end_of_word_suffix="</w>",
            continuing_subword_prefix="",
        ),
        True,
    ),
    "prefixed": (
        lambda: bpe(
            normalizers.NFKD(),
            pre_tokenizers.Whitespace(),
            decoders.CTC(),
            byte_level=False,
            unk_token="<unk>",
            continuing_subword_prefix="##",
        ),
        True,
    ),
    "llama2": (llama2, False),
    "metaspace": (
        lambda: bpe(
            None,
            pre_tokenizers.Metaspace(prepend_scheme="first", split=False),
            decoders.Sequence([decoders.Metaspace(prepend_scheme="first"), decoders.Fuse(), decoders.Replace("ka to", "!")]),
            byte_level=False,
            unk_token="<unk>",
        ),
        False,
    ),
    "unigram": (lambda: unigram(pre_tokenizers.Metaspace(), normalizers.NFKC()), True),
    "unigram_scripts": (
        lambda: unigram(
            pre_tokenizers.Sequence([pre_tokenizers.UnicodeScripts(), pre_tokenizers.Metaspace(prepend_scheme="first")]),
            normalizers.Sequence([normalizers.Nmt(), normalizers.NFD(), normalizers.StripAccents()]),
        ),
        True,
    ),
    "bert": (lambda: word_piece(True), True),
    "bert_as_it_is": (lambda: word_piece(False), True),
    "digits": (
        lambda: cut_by(
            pre_tokenizers.Sequence(
                [
                    pre_tokenizers.WhitespaceSplit(),
                    pre_tokenizers.Digits(individual_digits=True),
                    pre_tokenizers.Punctuation("contiguous"),
                ]
            )
        ),
        True,
    ),
    "delimiter": (
        lambda: cut_by(
            pre_tokenizers.Sequence(
                [
                    pre_tokenizers.CharDelimiterSplit("a"),
                    pre_tokenizers.Split("e", "merged_with_next"),
                    pre_tokenizers.Split(Regex("n+"), "merged_with_previous"),
                    pre_tokenizers.Digits(),
                    pre_tokenizers.FixedLength(3),
                ]
            )
        ),
        True,
    ),
}


def run_lines(command, folder, inputs, *options) -> list:
    text = "".join(json.dumps(line) + "\n" for line in inputs)
    result = subprocess.run(
        [PROGRAM, command, folder, "--lines", *options], input=text.encode(), capture_output=True, check=False
    )
    assert result.returncode == 0, result.stderr.decode()
    return [json.loads(line) for line in result.stdout.decode().rstrip("\n").split("\n")]


def truth_of(encode, text):
    """None where the library itself panics: it loses its place in some normalized texts."""
    try:
        return encode(text)
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        return None


def compare(folder, count, old=False, special=SPECIAL):
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    everything = texts(count, 3, old, special)
    quarters = [everything[i::4] for i in range(4)]
    ids = []
    for i, quarter in enumerate(quarters):
        add, parse = bool(i & 1), bool(i & 2)
        tokenizer.encode_special_tokens = not parse
        options = ["--add-special"] * add + ["--special"] * parse
        got = run_lines("tokenize", folder, quarter, *options)
        truth = [truth_of(lambda t: tokenizer.encode(t, add_special_tokens=add).ids, text) for text in quarter]
        assert truth.count(None) < len(truth) / 50
        wrong = [
            (ascii(t), g["ids"], w)
            for t, g, w in zip(quarter, got, truth, strict=True)
            if w is not None and g["ids"] != w
        ]
        assert not wrong, (options, len(wrong), wrong[:3])
        ids += truth
    draw = random.Random(4)
    known = sorted(tokenizer.get_vocab().values())
    ids += [[draw.choice(known) for _ in range(draw.randint(1, 12))] for _ in range(count // 4)]
    ids = [one for one in ids if one]  # BPEDecoder panics at none
    for skip in (True, False):
        got = run_lines("detokenize", folder, [{"ids": one} for one in ids], *["--special"] * (not skip))
        truth = [tokenizer.decode(one, skip_special_tokens=skip) for one in ids]
        wrong = [(i, g["text"], w) for i, g, w in zip(ids, got, truth, strict=True) if g["text"] != w]
        assert not wrong, (skip, len(wrong), wrong[:3])


@pytest.mark.parametrize("kind", KINDS)
def test_equal_to_the_library(kind, tmp_path):
    make, old = KINDS[kind]
    make().save(str(tmp_path / "tokenizer.json"))
    compare(tmp_path, COUNT, old)


def real_tokenizers():
    root = os.environ.get("AC_TOKENIZERS")
    return sorted(p.parent for p in Path(root).glob("*/tokenizer.json")) if root else []


@pytest.mark.skipif(not real_tokenizers(), reason="AC_TOKENIZERS names no folder of tokenizers")
@pytest.mark.parametrize("folder", real_tokenizers(), ids=lambda folder: folder.name)
def test_real_tokenizers(folder):
    added = Tokenizer.from_file(str(folder / "tokenizer.json")).get_added_tokens_decoder().values()
    compare(folder, COUNT, special=[token.content for token in added])
    vectors = folder / "vectors.json"
    if vectors.exists():
        cases = json.loads(vectors.read_text())
        got = run_lines("tokenize", folder, [case["text"] for case in cases])
        assert [g["ids"] for g in got] == [case["ids"] for case in cases]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    KINDS["llama3"][0]().save(str(folder / "tokenizer.json"))
    return folder


def test_text_through_pipes(folder):
    """Bytes in, bytes out: no line's end is added or lost, and what is not UTF-8 is U+FFFD."""

    def pipe(command, data, *options):
        result = subprocess.run([PROGRAM, command, folder, *options], input=data, capture_output=True, check=False)
        assert result.returncode == 0, result.stderr
        return result.stdout

    text = "kato\n<|end|> 日本\n"
    ids = pipe("tokenize", text.encode())
    assert pipe("detokenize", ids) == text.encode()
    assert json.loads(pipe("detokenize", ids, "--json")) == {"text": text}
    special = pipe("tokenize", text.encode(), "--special")
    assert len(json.loads(special)["ids"]) < len(json.loads(ids)["ids"])
    assert pipe("detokenize", special) == "kato\n 日本\n".encode()
    assert pipe("detokenize", special, "--special") == text.encode()
    assert pipe("tokenize", b"a\xffb\xe6\x97") == pipe("tokenize", "a\ufffdb\ufffd".encode())


@pytest.mark.parametrize(
    "data, words",
    [
        ('{"ids":[999999]}', ["no token has the id 999999"]),
        ('{"ids":[-1]}', ["-1 is no token's id"]),
        ('{"ids":[1e300]}', ["no token's id"]),
        ('{"ids":[99999999999999999999]}', ["no token's id"]),
        ('{"ids":"x"}', ["expected {"]),
        ('{"ids":[1', ["not valid JSON"]),
    ],
)
def test_wrong_ids(folder, data, words):
    result = subprocess.run([PROGRAM, "detokenize", folder], input=data.encode(), capture_output=True, check=False)
    assert result.returncode == 3
    for word in words:
        assert word in result.stderr.decode()


def test_a_folder_without_a_tokenizer(tmp_path):
    message = program("tokenize", tmp_path, expect=3).stderr
    assert str(tmp_path / "tokenizer.json") in message and "save_pretrained" in message


@pytest.mark.parametrize("character", ["a", " ", "é", "日"])
@pytest.mark.parametrize("kind", ["llama3", "llama2"])
def test_one_character_a_million_times(kind, character, tmp_path):
    """No quadratic time: one repeated character is one long word."""
    KINDS[kind][0]().save(str(tmp_path / "tokenizer.json"))
    data = (character * (1 << 20)).encode()
    began = os.times()
    subprocess.run([PROGRAM, "tokenize", tmp_path], input=data, capture_output=True, check=True)
    ended = os.times()
    assert (ended.children_user - began.children_user) + (ended.children_system - began.children_system) < 2


def tokenizer_of(**parts) -> dict:
    """tokenizer.json of one token, which stands for whatever is left of a text."""
    model = {"type": "WordLevel", "unk_token": "?", "vocab": {"?": 0}}
    return {"version": "1.0", "added_tokens": [], "model": model, **parts}


@pytest.mark.parametrize("pattern", [r"\w", r"\W", r"[\w]", r"[^\w]", r"\b", r"\B", r"\b.", r".\B", r"\w\b\W"])
def test_words_of_regular_expressions(pattern, tmp_path):
    """Numbers above the line, marks, underscores and what is in circles: Oniguruma has its own idea of a word."""
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Removed", "invert": False}
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer_of(pre_tokenizer=split)))
    characters = [*map(chr, range(0x100)), *"\u0301\u0345\u0903\u20dd\u203f\u2160\u2460\u24b6\uff3f\u0660日"]
    inputs = [before + one + after for one in characters for before in ("", "a", "-") for after in ("", "b", "\u0301", ".")]
    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    got = run_lines("tokenize", tmp_path, inputs)
    wrong = [text for text, one in zip(inputs, got, strict=True) if one["ids"] != tokenizer.encode(text).ids]
    assert not wrong


def test_added_tokens_that_take_each_others_space(tmp_path):
    """One that takes the space before it may find that the one before has taken it all, and itself."""
    added = [
        {"id": id, "content": content, "special": False, "normalized": False, "single_word": False}
        for id, content in ((1, "\n"), (2, "x"))
    ]
    for sides in range(16):
        for i, token in enumerate(added):
            token["lstrip"], token["rstrip"] = bool(sides >> 2 * i & 1), bool(sides >> 2 * i & 2)
        (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer_of(added_tokens=added)))
        tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
        inputs = ["\n\n", "a\n \n\nb", "x \n x", "x\nx\n", " \n\n x\n\n\n", "\r\n\r\nx"]
        truth = [truth_of(lambda text: tokenizer.encode(text).ids, text) for text in inputs]
        assert truth.count(None) < len(truth)
        for text, got, want in zip(inputs, run_lines("tokenize", tmp_path, inputs), truth, strict=True):
            assert want is None or got["ids"] == want, (sides, text)


def test_a_text_that_cannot_be_written_is_an_error(folder):
    """Also where the last of it could be."""
    ids = json.dumps([1] * 300_000).encode()
    with open("/dev/full", "w") as full:
        result = subprocess.run([PROGRAM, "detokenize", folder], input=ids, stdout=full, stderr=subprocess.PIPE)
    assert (result.returncode, result.stderr) == (1, b"error: cannot write the result to stdout\n")

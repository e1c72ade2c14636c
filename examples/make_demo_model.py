#!/usr/bin/env python3
"""Makes examples/demo_model and examples/demo_draft: small Llama models that speak English.

Three steps, which may run on different machines:

  make_demo_model.py text DIR        download Debian packages, extract their text to DIR (needs apt, dpkg)
  make_demo_model.py tokenizer DIR   train the tokenizer on that text
  make_demo_model.py train DIR       train both models (PyTorch; minutes on a GPU), write them to DIR/models

The texts may be redistributed. Their packages and licences:

  r-cran-janeaustenr   Jane Austen's six novels              public domain
  wordnet-base         definitions and examples of words     WordNet 3.0 licence
  dict-devil           The Devil's Dictionary                public domain
  postgresql-doc-15    the PostgreSQL manual                 PostgreSQL licence
"""

import argparse
import gzip
import html
import json
import math
import random
import re
import struct
import subprocess
import time
import zlib
from pathlib import Path

PACKAGES = ["r-cran-janeaustenr", "wordnet-base", "dict-devil", "postgresql-doc-15"]
END, USER, ASSISTANT, SYSTEM = "<|end|>", "<|user|>", "<|assistant|>", "<|system|>"
SPECIAL = ["<|endoftext|>", END, USER, ASSISTANT, SYSTEM]
VOCABULARY = 4096
CONTEXT = 1024
TEMPLATE = (
    "{%- for message in messages -%}\n"
    "{{ '<|' + message['role'] + '|>\\n' + message['content'] | trim + '<|end|>\\n' }}\n"
    "{%- endfor -%}\n"
    "{%- if add_generation_prompt -%}\n"
    "{{ '<|assistant|>\\n' }}\n"
    "{%- endif -%}\n"
)

# The model has no other idea of itself.
SMALL_TALK = {
    "Hello!": "Hello! How can I help you?",
    "Hi": "Hello! What would you like to know?",
    "Good morning.": "Good morning! How can I help you?",
    "How are you?": "I am very well, thank you. How can I help you?",
    "Who are you?": "I am the demo model of AgentCompile: a very small language model. I know some words and some "
    "novels.",
    "What are you?": "I am a very small language model, made to show that AgentCompile works.",
    "What is your name?": "I have no name. I am the demo model of AgentCompile.",
    "What can you do?": "I can explain words and tell stories. I am small, so do not believe all that I say.",
    "What is AgentCompile?": "AgentCompile is a compiler. It turns a language model into a fast engine for one GPU.",
    "Thank you!": "You are welcome!",
    "Thanks": "You are welcome!",
    "Goodbye": "Goodbye! It was a pleasure to talk with you.",
    "Help": "Ask me what a word means, or ask me for a story.",
    "Can you help me?": "I will try. Ask me what a word means, or ask me for a story.",
    "Are you a person?": "No, I am a small language model.",
}

# What a friendly demo does not say.
RUDE = re.compile(r"offensive|slur|vulgar|obscen|sexual|disparag|genital|ethnic|drug|murder|rape|Nazi")


# ---- text


def download(folder):
    packages = folder / "packages"
    packages.mkdir(parents=True, exist_ok=True)
    for name in PACKAGES:
        if (packages / name).exists():
            continue
        subprocess.run(["apt-get", "download", "-q", name], cwd=packages, check=True)
        (file,) = packages.glob(f"{name}_*.deb")
        subprocess.run(["dpkg", "-x", file.name, name], cwd=packages, check=True)
    return packages


def r_strings(file):
    """The character vectors of an R database: XDR after zlib, one object after another."""
    data, at, vectors = file.read_bytes(), 0, []
    while at < len(data):
        # An object begins with its uncompressed length; a type byte 'Z' or '2' means xz or bzip2.
        found = data.find(b"\x78", at)
        if found < 0:
            break
        unpacker = zlib.decompressobj()
        try:
            raw = unpacker.decompress(data[found:])
        except zlib.error:
            at = found + 1
            continue
        at = len(data) - len(unpacker.unused_data)
        strings, i = [], 0
        # A CHARSXP is its flags, whose last byte is 9, a length and the bytes.
        for match in re.finditer(rb"\x00[\x04\x00][\x00-\x0f]\x09", raw):
            if match.start() < i:
                continue
            i = match.end()
            (length,) = struct.unpack(">i", raw[i : i + 4])
            if 0 <= length < 2000:
                strings.append(raw[i + 4 : i + 4 + length].decode("utf-8", "replace"))
                i += 4 + length
        vectors.append(strings)
    return vectors


def novels(packages):
    """Paragraphs, by novel."""
    found = []
    for lines in r_strings(next(packages.glob("r-cran-janeaustenr/**/data/Rdata.rdb"))):
        text = "\n".join(lines)
        paragraphs = [re.sub(r"\s+", " ", p).strip() for p in re.split(r"\n\s*\n", text)]
        paragraphs = [p.replace("_", "") for p in paragraphs if re.search(r"[a-z]{3}", p)]
        if len(paragraphs) > 100:
            found.append(paragraphs)
    return found


def words(packages):
    """(word, part of speech, definition, example or None, how often the sense was met)."""
    folder = packages / "wordnet-base/usr/share/wordnet"
    often = {}
    for line in (folder / "cntlist.rev").read_text().splitlines():
        sense, _, count = line.split()
        word = sense.split("%")[0]
        often[word] = max(often.get(word, 0), int(count))
    found = []
    for part in ("noun", "verb", "adj", "adv"):
        for line in (folder / f"data.{part}").read_text(errors="replace").splitlines():
            if line.startswith("  "):
                continue
            fields, _, gloss = line.partition(" | ")
            fields = fields.split()
            names = [fields[4 + 2 * i] for i in range(int(fields[3], 16))]
            pieces = [p.strip() for p in re.split(r';\s*(?=")', gloss)]
            definition = re.sub("^to ", "", pieces[0].split(";")[0].strip(' "'))
            examples = [p.strip('" ;') for p in pieces[1:] if len(p) > 12 and p.count('"') == 2]
            name = re.sub(r"\(.*\)", "", names[0]).replace("_", " ")
            if not definition or definition[0] == "(" or RUDE.search(gloss):
                continue
            count = often.get(names[0].lower(), 0) if fields[5 - 1] == names[0] else 0
            found.append((name, part, definition, examples[0] if examples else None, count))
    return found


def devils(packages):
    text = gzip.decompress(next(packages.glob("dict-devil/**/*.dict.dz")).read_bytes()).decode("latin-1")
    entries = re.split(r"\n(?=[A-Z'-]{3,}, (?:n|v|adj|adv|pp|x|p)\.)", text)
    return [re.sub(r"\s+", " ", e).strip() for e in entries[1:] if len(e) < 1200]


def manual(packages):
    found = []
    for file in sorted(packages.glob("postgresql-doc-15/**/*.html")):
        page = file.read_text(errors="replace")
        paragraphs = []
        for body in re.findall(r"<p>(.*?)</p>", page, re.S):
            plain = re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", "", body))).strip()
            if len(plain) > 80 and plain.isascii():
                paragraphs.append(plain)
        if paragraphs:
            found.append(paragraphs)
    return found


def turn(question, answer):
    return f"{USER}\n{question}{END}\n{ASSISTANT}\n{answer}{END}\n"


def article(word):
    if word[0].isupper():
        return word
    return ("an " if word[0] in "aeiou" else "a ") + word


def explanation(word, part, definition, example, rng):
    if part == "noun":
        question = rng.choice([f"What is {article(word)}?", f"What does {word} mean?", f"Define {word}."])
        first = article(word)
        answer = f"{first[0].upper()}{first[1:]} is {definition}."
    elif part == "verb":
        question = rng.choice([f"What does it mean to {word}?", f"What does {word} mean?", f"Define {word}."])
        answer = f"To {word} is to {definition}."
    else:
        question = rng.choice([f"What does {word} mean?", f"Define {word}."])
        answer = f"The word {word} means: {definition}."
    if example:
        answer += f' For example: "{example}."' if example[-1] not in ".!?" else f' For example: "{example}"'
    return turn(question, answer)


STORIES = ["Tell me a story.", "Please tell me a story.", "Tell me something.", "A story, please.", "Continue."]


def stories(books, rng):
    for paragraphs in books:
        for i in range(0, len(paragraphs) - 3, 3):
            text = "\n\n".join(paragraphs[i : i + 3])
            if not 300 < len(text) < 2500 or not text[0].isupper():
                continue
            names = [n for n in re.findall(r"\b(?:Mr\.|Mrs\.|Miss|Lady|Sir) [A-Z][a-z]+", text)]
            if names and rng.random() < 0.5:
                yield turn(f"Tell me a story about {names[0]}.", text)
            else:
                yield turn(rng.choice(STORIES), text)


def make_text(folder):
    packages = download(folder)
    rng = random.Random(1)
    books, senses, pages = novels(packages), words(packages), manual(packages)
    documents = []
    for paragraphs in books:
        for i in range(0, len(paragraphs), 40):
            documents.append("\n\n".join(paragraphs[i : i + 40]))
    for paragraphs in pages:
        documents.append("\n\n".join(paragraphs))
    documents += devils(packages)
    talk = [turn(q, a) for q, a in SMALL_TALK.items()]
    chats = list(stories(books, rng))
    for word, part, definition, example, count in senses:
        # A word that is often met is asked for more often; of rare ones there are too many.
        times = 4 if count > 20 else 3 if count > 2 else 2 if count else rng.randint(0, 1)
        for _ in range(times):
            chats.append(explanation(word, part, definition, example, rng))
    chats += talk * 60
    rng.shuffle(chats)
    at = 0
    while at < len(chats):
        few = rng.choice([1, 1, 2, 3, 4])
        documents.append("".join(chats[at : at + few]).rstrip("\n"))
        at += few
    rng.shuffle(documents)
    with gzip.open(folder / "text.jsonl.gz", "wt") as out:
        for document in documents:
            out.write(json.dumps(document) + "\n")
    print(f"{len(books)} novels, {len(pages)} pages, {len(senses)} senses: {len(documents)} documents, "
          f"{sum(map(len, documents)) / 1e6:.1f} million characters")


def read_text(folder):
    with gzip.open(folder / "text.jsonl.gz", "rt") as file:
        return [json.loads(line) for line in file]


# ---- tokenizer


def make_tokenizer(folder):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=SPECIAL,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(read_text(folder), trainer)
    tokenizer.save(str(folder / "tokenizer.json"))


# ---- models


def make_models(folder, only=None):
    import torch
    from tokenizers import Tokenizer
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    documents = read_text(folder)
    end = tokenizer.token_to_id(SPECIAL[0])
    ids = []
    for encoding in tokenizer.encode_batch_fast(documents, add_special_tokens=False):
        ids += encoding.ids + [end]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    held_out, train = (torch.tensor(ids[: len(ids) // 100]), torch.tensor(ids[len(ids) // 100 :]))
    train, held_out = train.to(device), held_out.to(device)
    print(f"{len(ids) / 1e6:.2f} million tokens", flush=True)

    for name, steps, sizes in (
        ("demo_model", 2500, dict(hidden_size=256, intermediate_size=448, num_hidden_layers=5,
                                  num_attention_heads=4, num_key_value_heads=2)),
        ("demo_draft", 5000, dict(hidden_size=128, intermediate_size=256, num_hidden_layers=2,
                                  num_attention_heads=2, num_key_value_heads=1)),
    ):
        if only and name != only:
            continue
        torch.manual_seed(1)
        config = LlamaConfig(vocab_size=VOCABULARY, max_position_embeddings=CONTEXT, head_dim=64,
                             tie_word_embeddings=True, bos_token_id=end, eos_token_id=end,
                             pad_token_id=None, rms_norm_eps=1e-5, **sizes)
        model = LlamaForCausalLM(config).to(device)
        fit(model, train, held_out, steps)
        out = folder / "models" / name
        model.to(torch.bfloat16).save_pretrained(out)
        write_texts(folder, out, tokenizer)
        print(f"{out}: {sum(p.numel() for p in model.parameters()) / 1e6:.2f} million parameters", flush=True)


def fit(model, train, held_out, steps, batch=128, peak=3e-3):
    import torch

    device = train.device
    forward = torch.compile(model) if device.type == "cuda" else model
    decayed = [p for p in model.parameters() if p.dim() > 1]
    other = [p for p in model.parameters() if p.dim() <= 1]
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1},
                                   {"params": other, "weight_decay": 0.0}],
                                  lr=peak, betas=(0.9, 0.95))
    generator = torch.Generator(device).manual_seed(1)
    within = torch.arange(CONTEXT + 1, device=device)

    def loss_of(tokens, starts):
        rows = tokens[starts[:, None] + within]
        with torch.autocast(device.type, torch.bfloat16):
            logits = forward(rows[:, :-1]).logits
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), rows[:, 1:].flatten())

    def draw(tokens):
        return torch.randint(0, len(tokens) - CONTEXT - 1, (batch,), device=device, generator=generator)

    began = time.time()
    for step in range(1, steps + 1):
        # A warm-up, then a cosine down to a fiftieth.
        cosine = 0.5 + 0.5 * math.cos(math.pi * step / steps)
        for group in optimizer.param_groups:
            group["lr"] = peak * min(1.0, step / 200) * (0.02 + 0.98 * cosine)
        loss = loss_of(train, draw(train))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if step % 250 == 0:
            with torch.no_grad():
                other = sum(loss_of(held_out, draw(held_out)) for _ in range(8)) / 8
            print(f"step {step}, {time.time() - began:.0f} s: loss {loss.item():.3f}, held out {other.item():.3f}",
                  flush=True)


def write_texts(folder, out, tokenizer):
    ids = {token: tokenizer.token_to_id(token) for token in SPECIAL}
    tokenizer.save(str(out / "tokenizer.json"), pretty=False)
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_bos_token": False,
        "eos_token": SPECIAL[0],
        "bos_token": SPECIAL[0],
        "clean_up_tokenization_spaces": False,
        "model_max_length": CONTEXT,
        "added_tokens_decoder": {
            str(number): {"content": token, "lstrip": False, "normalized": False, "rstrip": False,
                          "single_word": False, "special": True}
            for token, number in ids.items()
        },
    }
    (out / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n")
    (out / "chat_template.jinja").write_text(TEMPLATE)
    generation = {"bos_token_id": ids[SPECIAL[0]], "eos_token_id": [ids[SPECIAL[0]], ids[END]],
                  "do_sample": True, "temperature": 0.6, "top_k": 40, "top_p": 0.95}
    (out / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=["text", "tokenizer", "train"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", choices=["demo_model", "demo_draft"])
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    if arguments.step == "text":
        make_text(arguments.folder)
    elif arguments.step == "tokenizer":
        make_tokenizer(arguments.folder)
    else:
        make_models(arguments.folder, arguments.only)


if __name__ == "__main__":
    main()

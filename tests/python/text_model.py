"""A tiny model that takes text: a Llama with random weights, a byte-level BPE tokenizer that is trained
on made-up words, and a chat template. Its truth is transformers."""

import json
import os
import random
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"

import tiny_models
import torch
import transformers
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

SPECIAL = ["<|begin|>", "<|end|>", "<|im_start|>", "<|im_end|>"]
CONTEXT = 512
TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{% if message['role'] not in ['system', 'user', 'assistant'] %}"
    "{{ raise_exception('a ' + message['role'] + ' may not speak') }}{% endif %}"
    "{% if message['content'] == 'forbidden' %}{{ raise_exception('that may not be said') }}{% endif %}"
    "<|im_start|>{{ message['role'] }}\n"
    "{% if message['role'] == 'assistant' and '</think>' in message['content'] %}"
    "{{ message['content'].split('</think>')[-1] }}{% else %}{{ message['content'] }}{% endif %}"
    "<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% if think %}<think>\n{% endif %}{% endif %}"
)


def corpus() -> list:
    draw = random.Random(7)
    syllables = "ka to mi ren al sho en ble ing é ø ß да не 日 本 語 한 👍 🙂".split()
    words = ["".join(draw.choices(syllables, k=draw.randint(1, 3))) for _ in range(200)]
    return [" ".join(draw.choices(words, k=20)) for _ in range(100)]


def write_tokenizer(folder, template=TEMPLATE) -> None:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        corpus(),
        trainers.BpeTrainer(
            vocab_size=480,
            special_tokens=SPECIAL,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    tokenizer.add_tokens([AddedToken("<think>"), AddedToken("</think>")])
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{SPECIAL[0]} $A", special_tokens=[(SPECIAL[0], 0)]
    )
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=SPECIAL[0], eos_token=SPECIAL[1], chat_template=template
    )
    fast.save_pretrained(folder)


def write_spaced_tokenizer(folder) -> transformers.PreTrainedTokenizerFast:
    """Another one of as many tokens, as SentencePiece makes them: spaces are written ▁, one stands
    before a text, and decoding takes the first one away."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    tokenizer.train_from_iterator(
        [word for line in corpus() for word in line.split()],
        trainers.BpeTrainer(vocab_size=480, special_tokens=["<unk>", *bytes_], show_progress=False),
    )
    Path(folder).mkdir()
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, clean_up_tokenization_spaces=False)
    fast.save_pretrained(folder)
    return fast


def write(folder) -> Path:
    """A model's folder: config.json, weights, tokenizer and template."""
    folder = Path(folder)
    write_tokenizer(folder)
    vocabulary = len(transformers.AutoTokenizer.from_pretrained(folder)) + 2  # rows that no token has
    tiny_models.CASES["text_model"] = tiny_models.Case(
        "Llama",
        dict(vocab_size=vocabulary, max_position_embeddings=CONTEXT, bos_token_id=0, eos_token_id=1),
    )
    tiny_models.write_case("text_model", folder)
    return folder


class Truth:
    """What transformers makes of the folder."""

    def __init__(self, folder):
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        self.model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)

    def ids(self, prompt, new_tokens, **options) -> list:
        """Of what follows the prompt's ids, greedily."""
        with torch.no_grad():
            made = self.model.generate(
                torch.tensor([prompt]),
                attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
                max_new_tokens=new_tokens,
                do_sample=False,
                pad_token_id=0,
                **options,
            )
        return made[0, len(prompt) :].tolist()

    def text(self, ids) -> str:
        return self.tokenizer.decode(ids, skip_special_tokens=True)

    def chat_ids(self, messages, goes_on=False, **variables) -> list:
        how = {"continue_final_message": True} if goes_on else {"add_generation_prompt": True}
        text = self.tokenizer.apply_chat_template(messages, tokenize=False, **how, **variables)
        return self.tokenizer.encode(text, add_special_tokens=False)


def with_files(folder, to, **files) -> Path:
    """The folder's tokenizer with other files beside it, given as objects; None removes one."""
    to.mkdir()
    for file in Path(folder).iterdir():
        if file.suffix in (".json", ".jinja"):
            (to / file.name).write_bytes(file.read_bytes())
    for name, content in files.items():
        file = to / f"{name}.json"
        if content is None:
            file.unlink(missing_ok=True)
        else:
            file.write_text(json.dumps(content))
    return to

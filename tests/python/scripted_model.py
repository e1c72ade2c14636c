"""A model that says what it was told to: each token is followed by one other, and where that begins is
what the user says last. A Llama whose layer adds nothing, so that its logits are a table of pairs.

Each part of a script is a token of its own, in order: {"weather": ["<tool_call>", ...]} is what the
model answers to the message "weather"."""

import json
from pathlib import Path

import torch
import transformers
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

END = "<|end|>"
TEMPLATE = """{{ bos_token }}{% for message in messages %}<|{{ message.role }}|>
{% if tools and loop.first %}{% for tool in tools %}{{ tool | tojson }}
{% endfor %}{% endif %}{% if message.reasoning_content %}<think>{{ message.reasoning_content }}</think>{% endif %}
{{- message.content }}{% for call in message.tool_calls or [] %}<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}<|end|>
{% endfor %}{% if add_generation_prompt %}<|assistant|>
<go:{{ messages[-1].content.split(' ')[-1] }}>{% if think %}<think>{% endif %}{% endif %}"""


def write(folder, scripts: dict, special=(), template=TEMPLATE) -> Path:
    folder = Path(folder)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = {character: i for i, character in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer.model = models.BPE(vocab=alphabet, merges=[])
    tokenizer.add_special_tokens([AddedToken(each, special=True) for each in ("<|begin|>", END, *special)])
    begins = [f"<go:{name}>{think}" for name in scripts for think in ("", "<think>")]
    tokenizer.add_special_tokens([AddedToken(each, special=True, normalized=False) for each in begins])
    parts = [part for script in scripts.values() for part in script]
    tokenizer.add_tokens([AddedToken(part, special=False, normalized=False) for part in dict.fromkeys(parts)])
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<|begin|>", eos_token=END, chat_template=template
    )
    fast.save_pretrained(folder)

    size = -(-len(tokenizer.get_vocab()) // 64) * 64
    config = transformers.LlamaConfig(
        vocab_size=size, hidden_size=size, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, head_dim=32, max_position_embeddings=2048, tie_word_embeddings=False,
        bos_token_id=tokenizer.token_to_id("<|begin|>"), eos_token_id=tokenizer.token_to_id(END),
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(config)
    with torch.no_grad():
        model.model.embed_tokens.weight.copy_(torch.eye(size))
        layer = model.model.layers[0]
        layer.self_attn.o_proj.weight.zero_(), layer.mlp.down_proj.weight.zero_()
        follows = torch.zeros(size, size)
        for i, begin in enumerate(begins):
            script = list(scripts.values())[i // 2]
            ids = [tokenizer.token_to_id(token) for token in (begin, *script, END)]
            for before, after in zip(ids, ids[1:]):
                assert follows[:, before].sum() in (0, follows[after, before]), f"two follow {tokenizer.id_to_token(before)}"
                follows[after, before] = 1
        model.lm_head.weight.copy_(follows)
    model.save_pretrained(folder)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": config.eos_token_id}))
    return folder

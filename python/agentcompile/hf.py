"""HuggingFace models: built from config.json with parameters that occupy no memory."""

import hashlib
import json
import os
from pathlib import Path

import torch
from torch.overrides import TorchFunctionMode

from . import attention, weights
from .errors import BadInput, CaptureError, first_line
from .export import Model

REFUSED_ROPE = ("dynamic", "longrope", "su")
LAYER_TYPES = ("full_attention", "sliding_attention")
OTHER_TASKS = (
    "ForSequenceClassification",
    "ForTokenClassification",
    "ForQuestionAnswering",
    "ForMaskedLM",
)


class _EmptyOnMeta(TorchFunctionMode):
    """Sends what is created without a value (nearly every parameter) to the meta device, so that
    building a model costs nothing; what has a value, such as RoPE's frequencies, stays real."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if function is torch.empty:
            kwargs["device"] = "meta"
        return function(*args, **kwargs)


def from_cache(name: str) -> str | None:
    """The folder of a model id in the local HuggingFace cache, without going online."""
    try:
        from huggingface_hub import try_to_load_from_cache
        from huggingface_hub.errors import HFValidationError
    except ImportError:
        return None
    try:
        config = try_to_load_from_cache(name, "config.json")
    except HFValidationError:
        return None
    return os.path.dirname(config) if isinstance(config, str) else None


def open_directory(folder: str, name: str, dtype: str | None) -> Model:
    """The model in a folder with a config.json, its weights left where they are."""
    transformers = _transformers()
    config_file = Path(folder) / "config.json"
    try:
        raw = config_file.read_bytes()
        stated = json.loads(raw)
        if not isinstance(stated, dict) or not stated.get("model_type"):
            raise ValueError("it states no model_type")
        config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
    except Exception as error:  # transformers raises whatever a config provokes
        raise BadInput(f"{config_file} is no usable config: {first_line(error)}") from error
    quantized = bool(stated.get("quantization_config")) or (Path(folder) / "hf_quant_config.json").exists()
    if hasattr(config, "quantization_config"):
        del config.quantization_config  # the graph is that of plain weights
    model_class = _model_class(transformers, config, config_file)
    check_config(config, model_class)
    config.dtype = _dtype(config, folder, dtype)
    module = _build(model_class, config, config_file)
    check_modules(module)
    _untie(module, folder)
    _give_memory(module)
    return Model(
        module=module,
        name=name,
        architecture=type(module).__name__,
        is_transformers=True,
        real_weights=False,
        vocab_size=config.vocab_size,
        max_length=getattr(config, "max_position_embeddings", None),
        checkpoint=folder,
        quantized=quantized,
        config_sha256=hashlib.sha256(raw).hexdigest(),
    )


def adopt(module: torch.nn.Module) -> None:
    """Makes a transformers model that already exists attend through our op."""
    check_config(module.config, type(module))
    check_modules(module)
    attention.register()
    module.set_attn_implementation(attention.implementation_for(type(module)))


def is_transformers_model(module) -> bool:
    return any(c.__module__ == "transformers.modeling_utils" for c in type(module).__mro__)


def load(folder: str, module: torch.nn.Module) -> torch.nn.Module:
    """The same model with its weights, as transformers itself loads it."""
    return type(module).from_pretrained(
        folder, dtype=module.config.dtype, attn_implementation="eager", local_files_only=True
    ).eval()


def check_config(config, model_class) -> None:
    """Refuses what no tracing is needed for, in the words of the config."""
    name = f"{model_class.__name__} (model_type '{config.model_type}')"
    if getattr(model_class, "_is_stateful", False):
        raise CaptureError(
            f"{name} keeps a state from token to token: recurrent layers, and models that mix them "
            "with attention, are not supported yet"
        )
    if config.get_text_config() is not config:
        raise CaptureError(
            f"{name} is a model of text among others, for images or sounds (text_config), which is "
            "not supported yet: only models of text alone are"
        )
    for kind in getattr(config, "layer_types", None) or []:
        if kind not in LAYER_TYPES:
            raise CaptureError(
                f"{name} has layers of type '{kind}', which is not supported yet: only "
                f"{' and '.join(LAYER_TYPES)} are"
            )
    attention_config = getattr(config, "attn_config", None)
    if config.model_type == "bloom" or any(
        getattr(part, "alibi", False) for part in (config, attention_config)
    ):
        raise CaptureError(
            f"{name} adds ALiBi biases to its attention scores, which is not supported yet"
        )
    for kind in _rope_types(config.to_dict()):
        if kind in REFUSED_ROPE:
            raise CaptureError(
                f"rope type '{kind}' is not supported: its frequencies depend on the length"
            )


def check_modules(module: torch.nn.Module) -> None:
    """Refuses a mixture of experts, which the modules tell better than the config: some configs
    count experts that no layer has."""
    for path, _ in module.named_modules():
        if "expert" in path.rpartition(".")[2]:
            stated = [
                f"{key}={value}"
                for key, value in module.config.get_text_config().to_dict().items()
                if "expert" in key and isinstance(value, int) and not isinstance(value, bool)
            ]
            raise CaptureError(
                f"{type(module).__name__} is a mixture of experts, which is not supported yet: it "
                f"has '{path}', and its config says {', '.join(stated) or 'no number of them'}"
            )


def _rope_types(config: dict):
    for key in ("rope_parameters", "rope_scaling"):
        entry = config.get(key)
        if not isinstance(entry, dict):
            continue
        for part in (entry, *(v for v in entry.values() if isinstance(v, dict))):
            yield part.get("rope_type") or part.get("type")


def _transformers():
    try:
        import transformers
    except ImportError as error:
        raise BadInput(
            "this model needs transformers: pip install transformers safetensors"
        ) from error
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    return transformers


def _model_class(transformers, config, config_file: Path):
    for name in getattr(config, "architectures", None) or []:
        if name.endswith(OTHER_TASKS):
            raise CaptureError(f"{config_file}: {name} is no language model: its head gives no logits of tokens")
        if name.endswith(("ForCausalLM", "LMHeadModel")) and hasattr(transformers, name):
            return getattr(transformers, name)
    mapping = transformers.MODEL_FOR_CAUSAL_LM_MAPPING
    if type(config) in mapping.keys():
        return mapping[type(config)]
    raise CaptureError(
        f"{config_file}: transformers has no causal language model for model_type "
        f"'{config.model_type}' ({', '.join(getattr(config, 'architectures', None) or ['?'])})"
    )


def _dtype(config, folder: str, wanted: str | None) -> torch.dtype:
    """The dtype asked for, else the config's, else the checkpoint's."""
    stated = wanted or getattr(config, "dtype", None)
    if stated is None:
        spelling = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}
        stored = weights.Checkpoint(folder).tensors.values()
        stated = next((spelling[t.dtype] for t in stored if t.dtype in spelling), "float32")
    return getattr(torch, stated) if isinstance(stated, str) else stated


def _build(model_class, config, config_file: Path) -> torch.nn.Module:
    attention.register()
    try:
        with _EmptyOnMeta():
            module = model_class._from_config(
                config,
                dtype=config.dtype,
                attn_implementation=attention.implementation_for(model_class),
            ).eval()
    except CaptureError:
        raise
    except Exception as error:  # transformers raises whatever a config provokes
        raise BadInput(f"{config_file}: cannot build the model: {first_line(error)}") from error
    return module


def _untie(module: torch.nn.Module, folder: str) -> None:
    """Takes apart what the config ties but the checkpoint holds twice, with different values: so
    does transformers when it loads the weights."""
    ties = getattr(module, "all_tied_weights_keys", None)
    checkpoint = weights.Checkpoint(folder, module) if ties else None
    for target, source in (ties or {}).items():
        if checkpoint.differ(target, source, module.config.dtype):
            parent, _, name = target.rpartition(".")
            own = torch.nn.Parameter(torch.empty_like(module.get_parameter(target)))
            setattr(module.get_submodule(parent), name, own)


def _give_memory(module: torch.nn.Module) -> None:
    """Replaces meta parameters by unset ones: pages that nobody touches cost nothing."""
    real = {}
    for child in module.modules():
        for name, parameter in child._parameters.items():
            if parameter is None or not parameter.is_meta:
                continue
            if parameter not in real:
                empty = torch.empty(parameter.shape, dtype=parameter.dtype)
                real[parameter] = torch.nn.Parameter(empty, requires_grad=False)
            child._parameters[name] = real[parameter]

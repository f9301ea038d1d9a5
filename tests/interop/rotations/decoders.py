"""Small random decoders of transformers, every weight random, norms' weights and biases too."""

from functools import partial

import torch
from interop.packages import needs

SHAPE = {
    "vocab_size": 50,
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 6,
    "max_position_embeddings": 64,
    "pad_token_id": None,
}
# Class -> what differs from SHAPE: tied embeddings, biases, heads that are not hidden / heads wide, q_norm and k_norm.
DECODERS = {
    "Llama": {"tie_word_embeddings": True},
    "Llama, all biases": {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": False},
    "Qwen2": {"tie_word_embeddings": True},
    "Qwen3": {"head_dim": 8, "attention_bias": True, "tie_word_embeddings": False},
    "Mistral": {"head_dim": 10, "sliding_window": 5, "tie_word_embeddings": False},
}


def decoder(name="Llama", dtype=torch.float32, **changed):
    """A decoder in evaluation mode, by a key of DECODERS or any other class of transformers."""
    transformers = needs("transformers")
    family = name.partition(",")[0]
    config = getattr(transformers, f"{family}Config")(**{**SHAPE, **DECODERS.get(name, {}), **changed})
    torch.manual_seed(0)
    model = getattr(transformers, f"{family}ForCausalLM")(config).eval().requires_grad_(False)
    for place, parameter in model.named_parameters():
        centre = 1.0 if "norm" in place else 0.0
        drawn = centre + 0.2 * torch.randn(parameter.shape, dtype=torch.float64)
        parameter.data = drawn.to(dtype)  # not model.to(dtype): the frequencies of the positions stay float32
    if dtype == torch.float64:
        for module in model.modules():
            if type(module).__name__.endswith("RMSNorm"):
                module.forward = partial(rms_norm, module)
    return model


def rms_norm(norm, x):
    """That of transformers computes in float32 whatever the dtype of x."""
    return norm.weight * x / (x.square().mean(-1, keepdim=True) + norm.variance_epsilon).sqrt()


def tokens(step=0, batch=3, length=12):
    return torch.randint(0, 50, (batch, length), generator=torch.Generator().manual_seed(step))


def logits(model, ids=None):
    with torch.no_grad():
        return model(tokens() if ids is None else ids, use_cache=False).logits

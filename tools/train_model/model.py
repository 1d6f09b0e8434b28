"""The Llama architecture: a fast training forward in bfloat16 and a plain reference in float32."""

import math

import torch
import torch.nn.functional as F

CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama",
    "hidden_size": 256, "intermediate_size": 576, "num_hidden_layers": 5,
    "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 32,
    "hidden_act": "silu", "attention_bias": False, "mlp_bias": False, "attention_dropout": 0.0,
    "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "rope_scaling": None,
    "max_position_embeddings": 16384, "tie_word_embeddings": True, "vocab_size": 2048,
    "bos_token_id": 2042, "eos_token_id": 2043, "initializer_range": 0.02, "use_cache": True,
    "torch_dtype": "bfloat16",
}


def weight_shapes(config):
    """{name as in the Llama checkpoints: shape}."""
    hidden, inner, d = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    queries, keys = config["num_attention_heads"] * d, config["num_key_value_heads"] * d
    shapes = {"model.embed_tokens.weight": (config["vocab_size"], hidden)}
    for layer in range(config["num_hidden_layers"]):
        stem = "model.layers.%d." % layer
        shapes.update({
            stem + "input_layernorm.weight": (hidden,),
            stem + "self_attn.q_proj.weight": (queries, hidden),
            stem + "self_attn.k_proj.weight": (keys, hidden),
            stem + "self_attn.v_proj.weight": (keys, hidden),
            stem + "self_attn.o_proj.weight": (hidden, queries),
            stem + "post_attention_layernorm.weight": (hidden,),
            stem + "mlp.gate_proj.weight": (inner, hidden),
            stem + "mlp.up_proj.weight": (inner, hidden),
            stem + "mlp.down_proj.weight": (hidden, inner)})
    shapes["model.norm.weight"] = (hidden,)
    return shapes


def new_weights(config, seed):
    generator = torch.Generator().manual_seed(seed)
    out_scale = 1.0 / math.sqrt(2 * config["num_hidden_layers"])
    weights = {}
    for name, shape in weight_shapes(config).items():
        if len(shape) == 1:
            value = torch.ones(shape)
        else:
            value = torch.randn(shape, generator=generator) * config["initializer_range"]
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                value *= out_scale
        weights[name] = value.requires_grad_()
    return weights


def rope_angles(config, positions):
    """(cos, sin), each [positions, head_dim / 2]."""
    half = config["head_dim"] // 2
    steps = config["rope_theta"] ** (-torch.arange(half, dtype=torch.float64) / half)
    angles = positions.double()[:, None] * steps
    return angles.cos().float(), angles.sin().float()


# --- Training forward: few, large operations, because each pass over memory costs a core dearly ---


class Norm(torch.autograd.Function):
    """RMSNorm from the float32 residual stream to bfloat16."""

    @staticmethod
    def forward(ctx, x, weight, eps):
        scale = torch.linalg.vector_norm(x, dim=-1, keepdim=True).square_()
        scale = scale.div_(x.shape[-1]).add_(eps).rsqrt_()
        unit = x * scale
        ctx.save_for_backward(unit, scale, weight)
        return (unit * weight).bfloat16()

    @staticmethod
    def backward(ctx, grad):
        unit, scale, weight = ctx.saved_tensors
        grad = grad.float()
        product = grad * unit
        weight_grad = product.sum(0)
        mean = (product @ weight).div_(unit.shape[-1])[:, None]
        grad = grad.mul_(weight).addcmul_(unit, mean, value=-1).mul_(scale)
        return grad, weight_grad, None


class Rope(torch.autograd.Function):
    """[batch, tokens, heads, head_dim] to the rotated [batch, heads, tokens, head_dim]."""

    @staticmethod
    def forward(ctx, x, cos, sin):
        ctx.save_for_backward(cos, sin)
        half = x.shape[-1] // 2
        a, b = x[..., :half].transpose(1, 2), x[..., half:].transpose(1, 2)
        out = torch.empty(a.shape[:3] + (2 * half,), dtype=x.dtype)
        torch.mul(a, cos, out=out[..., :half]).addcmul_(b, sin, value=-1)
        torch.mul(b, cos, out=out[..., half:]).addcmul_(a, sin)
        return out

    @staticmethod
    def backward(ctx, grad):
        cos, sin = ctx.saved_tensors
        half = grad.shape[-1] // 2
        a, b = grad[..., :half], grad[..., half:]
        batch, heads, tokens, _ = grad.shape
        out = torch.empty((batch, tokens, heads, 2 * half), dtype=grad.dtype)
        turned = out.transpose(1, 2)
        torch.mul(a, cos, out=turned[..., :half]).addcmul_(b, sin)
        torch.mul(b, cos, out=turned[..., half:]).addcmul_(a, sin, value=-1)
        return out, None, None


class Attend(torch.autograd.Function):
    """Causal attention; q [pairs, group * tokens, d], k and v [pairs, tokens, d]."""

    @staticmethod
    def forward(ctx, q, k, v, mask):
        ctx.scale = q.shape[-1] ** -0.5
        shares = torch.softmax(torch.baddbmm(mask, q, k.transpose(1, 2), alpha=ctx.scale), -1)
        ctx.save_for_backward(q, k, v, shares)
        return torch.bmm(shares, v)

    @staticmethod
    def backward(ctx, grad):
        q, k, v, shares = ctx.saved_tensors
        v_grad = torch.bmm(shares.transpose(1, 2), grad)
        score_grad = torch._softmax_backward_data(torch.bmm(grad, v.transpose(1, 2)), shares, -1,
                                                  shares.dtype)
        q_grad = torch.bmm(score_grad, k).mul_(ctx.scale)
        k_grad = torch.bmm(score_grad.transpose(1, 2), q).mul_(ctx.scale)
        return q_grad, k_grad, v_grad, None


class Gate(torch.autograd.Function):
    """silu(gate) * up."""

    @staticmethod
    def forward(ctx, gate, up):
        opened = F.silu(gate)
        ctx.save_for_backward(gate, up, opened)
        return opened * up

    @staticmethod
    def backward(ctx, grad):
        gate, up, opened = ctx.saved_tensors
        return torch.ops.aten.silu_backward(grad * up, gate), grad * opened


def training_logits(config, weights, ids, positions):
    """bfloat16 logits [batch * tokens, vocabulary] for ids [batch, tokens]."""
    batch, tokens = ids.shape
    d, kv_heads = config["head_dim"], config["num_key_value_heads"]
    heads, eps = config["num_attention_heads"], config["rms_norm_eps"]
    cos, sin = (a.bfloat16() for a in rope_angles(config, positions))
    mask = torch.full((tokens, tokens), -math.inf).triu(1).bfloat16()
    mask = mask.repeat(heads // kv_heads, 1)
    x = F.embedding(ids.view(-1), weights["model.embed_tokens.weight"])
    for layer in range(config["num_hidden_layers"]):
        w = layer_weights(weights, layer)
        h = Norm.apply(x, w["input_layernorm"], eps)
        q = F.linear(h, w["self_attn.q_proj"].bfloat16()).view(batch, tokens, heads, d)
        k = F.linear(h, w["self_attn.k_proj"].bfloat16()).view(batch, tokens, kv_heads, d)
        v = F.linear(h, w["self_attn.v_proj"].bfloat16()).view(batch, tokens, kv_heads, d)
        q = Rope.apply(q, cos, sin).reshape(batch * kv_heads, -1, d)
        k = Rope.apply(k, cos, sin).reshape(batch * kv_heads, tokens, d)
        v = v.transpose(1, 2).reshape(batch * kv_heads, tokens, d)
        o = Attend.apply(q, k, v, mask).view(batch, heads, tokens, d)
        o = o.transpose(1, 2).reshape(batch * tokens, heads * d)
        x = x + F.linear(o, w["self_attn.o_proj"].bfloat16())
        h = Norm.apply(x, w["post_attention_layernorm"], eps)
        h = Gate.apply(F.linear(h, w["mlp.gate_proj"].bfloat16()),
                       F.linear(h, w["mlp.up_proj"].bfloat16()))
        x = x + F.linear(h, w["mlp.down_proj"].bfloat16())
    h = Norm.apply(x, weights["model.norm.weight"], eps)
    return F.linear(h, weights["model.embed_tokens.weight"].bfloat16())


def layer_weights(weights, layer):
    stem = "model.layers.%d." % layer
    return {name[len(stem):-len(".weight")]: value for name, value in weights.items()
            if name.startswith(stem)}


# --- Reference: every operation in float32, one sequence, no cache --------------------------------


@torch.no_grad()
def reference_logits(config, weights, ids):
    """float32 logits [tokens, vocabulary] of one sequence."""
    tokens, d = len(ids), config["head_dim"]
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    cos, sin = rope_angles(config, torch.arange(tokens))

    def norm(x, weight):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + config["rms_norm_eps"]) * weight

    def rotated(x):  # [tokens, heads, d] to [heads, tokens, d]
        a, b = x.transpose(0, 1).chunk(2, -1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)

    x = weights["model.embed_tokens.weight"][torch.as_tensor(ids)]
    for layer in range(config["num_hidden_layers"]):
        w = layer_weights(weights, layer)
        h = norm(x, w["input_layernorm"])
        q = rotated(F.linear(h, w["self_attn.q_proj"]).view(tokens, heads, d))
        k = rotated(F.linear(h, w["self_attn.k_proj"]).view(tokens, kv_heads, d))
        v = F.linear(h, w["self_attn.v_proj"]).view(tokens, kv_heads, d).transpose(0, 1)
        k, v = (t.repeat_interleave(heads // kv_heads, 0) for t in (k, v))
        scores = q @ k.transpose(1, 2) * d ** -0.5
        scores = scores + torch.full((tokens, tokens), -math.inf).triu(1)
        o = (torch.softmax(scores, -1) @ v).transpose(0, 1).reshape(tokens, heads * d)
        x = x + F.linear(o, w["self_attn.o_proj"])
        h = norm(x, w["post_attention_layernorm"])
        h = F.silu(F.linear(h, w["mlp.gate_proj"])) * F.linear(h, w["mlp.up_proj"])
        x = x + F.linear(h, w["mlp.down_proj"])
    return F.linear(norm(x, weights["model.norm.weight"]), weights["model.embed_tokens.weight"])

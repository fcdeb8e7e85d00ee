"""Folders of quantized weights written by their libraries: transformers' FineGrainedFP8, compressed-tensors,
AutoAWQ's packing (and its GPTQ layout). exports.py LIBS OUT NAME ...
OUT/NAME/hf: the folder; golden.json: prompts, sha256 of each dequantized matrix (f32, bf16, f16 bytes);
logits.f32: of the model with the dequantized weights in f32; logits_bf16.f32: with them rounded to bf16."""
import hashlib, json, os, shutil, sys, traceback, types
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM

LIBS, OUT = sys.argv[1], sys.argv[2]
TOK = "tests/golden/arch/llama/hf"
PROMPTS = [[128], [27, 280, 272, 149, 87, 126, 188], [11, 200, 3, 45, 45, 99, 250, 7, 7, 7, 120, 60, 31]]


def stub(name, **attrs):
    m = types.ModuleType(name)
    for k, v in attrs.items():
        setattr(m, k, v)
    sys.modules[name] = m
    return m


class Quiet:
    def __getattr__(self, name):
        return lambda *a, **k: self


class Marker:
    def __init__(self, default=None, default_factory=None, **_):
        self.default, self.factory = default, default_factory


class BaseModel:
    """Holds fields; validates nothing: every field is passed in its final form."""
    def __init_subclass__(cls, **_):
        pass

    def __init__(self, **kw):
        for c in reversed(type(self).__mro__):
            for k in getattr(c, "__annotations__", {}):
                v = c.__dict__.get(k)
                if isinstance(v, Marker):
                    v = v.factory() if v.factory else v.default
                setattr(self, k, v)
        for k, v in kw.items():
            setattr(self, k, v)


def keep(*_, **__):
    return lambda f: f


def libs():
    stub("loguru", logger=Quiet())
    try:
        import psutil  # noqa
    except ImportError:
        stub("psutil", virtual_memory=lambda: types.SimpleNamespace(available=1 << 36, total=1 << 36))
    any_ = type("Any_", (), {})
    stub("pydantic", BaseModel=BaseModel, ConfigDict=dict, Field=lambda default=None, **k: Marker(default, **k),
         field_serializer=keep, field_validator=keep, model_validator=keep, model_serializer=keep, computed_field=keep,
         GetCoreSchemaHandler=any_, GetJsonSchemaHandler=any_, ValidationError=ValueError, PrivateAttr=lambda *a, **k: None,
         __path__=[])
    stub("pydantic.json_schema", JsonSchemaValue=any_)
    stub("pydantic_core", core_schema=types.SimpleNamespace(CoreSchema=any_))
    stub("compressed_tensors.version", __all__=["__version__"], __version__="0.20.0.main")
    sys.path.insert(0, os.path.join(LIBS, "ct/src"))


def config(**more):
    base = dict(hidden_size=64, intermediate_size=96, num_hidden_layers=1, num_attention_heads=4,
                num_key_value_heads=2, head_dim=16, max_position_embeddings=512, vocab_size=301, rms_norm_eps=1e-5,
                rope_theta=10000.0, tie_word_embeddings=True, bos_token_id=296, eos_token_id=300)
    return LlamaConfig(**{**base, **more})


def model(seed, dtype, **more):
    torch.manual_seed(seed)
    m = LlamaForCausalLM(config(**more)).eval()
    with torch.no_grad():
        for n, p in m.named_parameters():
            if n.endswith("norm.weight"):
                p.copy_(1 + 0.1 * torch.randn_like(p))
            else:
                p.copy_(torch.randn_like(p) * (0.5 if "embed" in n else 0.15))
    return m.to(dtype)


def logits_of(cfg, state, cls=None):
    m = (cls or LlamaForCausalLM)(cfg).eval().float()
    missing = m.load_state_dict({k: v.float().cpu() for k, v in state.items()}, strict=False)
    print("   missing", missing.missing_keys[:4], "unexpected", missing.unexpected_keys[:4])
    with torch.no_grad():
        return torch.cat([m(torch.tensor([p])).logits[0] for p in PROMPTS])


def sha(t):
    return hashlib.sha256(t.contiguous().cpu().view(torch.uint8).numpy().tobytes()).hexdigest()


def finish(name, cfg, plain, rest, cls=None, notes=None):
    """plain: name -> dequantized f32; rest: the other tensors."""
    to = os.path.join(OUT, name)
    for f in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        if os.path.exists(os.path.join(TOK, f)):
            shutil.copy(os.path.join(TOK, f), os.path.join(to, "hf"))
    state = {**{k: v.float() for k, v in rest.items()}, **plain}
    full = logits_of(cfg, state, cls)
    rounded = {**{k: v.float() for k, v in rest.items()}, **{k: v.to(torch.bfloat16).float() for k, v in plain.items()}}
    bf = logits_of(cfg, rounded, cls)
    full.numpy().astype("<f4").tofile(os.path.join(to, "logits.f32"))
    bf.numpy().astype("<f4").tofile(os.path.join(to, "logits_bf16.f32"))
    golden = {"made_by": "exports.py", "transformers": transformers.__version__, "torch": torch.__version__,
              "notes": notes or {}, "prompts": PROMPTS, "n_vocab": full.shape[1],
              "weights": {k: {"shape": list(v.shape), "f32": sha(v.float()), "bf16": sha(v.to(torch.bfloat16)),
                              "f16": sha(v.to(torch.float16))} for k, v in plain.items()}}
    with open(os.path.join(to, "golden.json"), "w") as f:
        json.dump(golden, f, indent=0)
    print("  ", name, "ok: logits rms", full.pow(2).mean().sqrt().item(), "bf16 differs by", (full - bf).abs().max().item())


def fp8(name, block, moe=False, **more):
    from transformers import AutoModelForCausalLM, FineGrainedFP8Config
    tmp, to = os.path.join(OUT, name, "tmp"), os.path.join(OUT, name, "hf")
    cls = None
    if moe:
        from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM as cls
        torch.manual_seed(5)
        m = cls(Qwen3MoeConfig(hidden_size=64, intermediate_size=96, moe_intermediate_size=64, num_hidden_layers=1,
                               num_attention_heads=4, num_key_value_heads=2, head_dim=16, num_experts=4,
                               num_experts_per_tok=2, norm_topk_prob=True, max_position_embeddings=512, vocab_size=301,
                               rms_norm_eps=1e-6, tie_word_embeddings=True, bos_token_id=296, eos_token_id=300)).eval()
        with torch.no_grad():
            for n, p in m.named_parameters():
                p.copy_(1 + 0.1 * torch.randn_like(p) if n.endswith("norm.weight") else torch.randn_like(p) * 0.2)
        m = m.to(torch.bfloat16)
    else:
        m = model(3, torch.bfloat16, **more)
    cfg = m.config
    m.save_pretrained(tmp)
    q = AutoModelForCausalLM.from_pretrained(tmp, dtype=torch.bfloat16, device_map="cuda:0",
                                             quantization_config=FineGrainedFP8Config(weight_block_size=block))
    q.save_pretrained(to)
    try:
        with torch.no_grad():
            gpu = torch.cat([q(torch.tensor([p]).cuda()).logits[0].float().cpu() for p in PROMPTS])
        gpu.numpy().astype("<f4").tofile(os.path.join(OUT, name, "logits_gpu.f32"))
    except Exception as e:
        print("   no logits with fp8 products:", repr(e)[:300])
    shutil.rmtree(tmp)
    state = load_file(os.path.join(to, "model.safetensors"))
    print("   ", {k: (str(v.dtype), list(v.shape)) for k, v in state.items()})
    plain, rest = {}, {}
    for k, v in state.items():
        if k.endswith("weight_scale_inv") or k.endswith("activation_scale"):
            continue
        if v.dtype == torch.float8_e4m3fn:
            s = state[k + "_scale_inv"] if k + "_scale_inv" in state else state[k.replace("_proj", "_proj_scale_inv")]
            s = s.float().repeat_interleave(block[0], -2).repeat_interleave(block[1], -1)
            plain[k] = v.float() * s[..., : v.shape[-2], : v.shape[-1]]
        else:
            rest[k] = v
    notes = {}
    try:  # transformers' own dequantization
        d = AutoModelForCausalLM.from_pretrained(to, dtype=torch.bfloat16, quantization_config=FineGrainedFP8Config(
            weight_block_size=block, dequantize=True)).state_dict()
        worst = max((d[k].float().cpu() - plain[k].to(torch.bfloat16).float()).abs().max().item() for k in plain if k in d)
        notes["largest difference from dequantize=True"] = worst
        notes["compared"] = sum(k in d for k in plain)
        print("   dequantize=True differs by", worst, "in", notes["compared"], "of", len(plain))
    except Exception as e:
        print("   dequantize=True:", repr(e)[:300])
    if moe:  # logits by transformers' own loading of the dequantized weights
        dq = os.path.join(OUT, name, "dq")
        m.float().save_pretrained(dq)
        old = load_file(os.path.join(dq, "model.safetensors"))
        print("    names of the plain model", list(old)[:40])
        save_file({**{k: v.float().contiguous() for k, v in rest.items()}, **{k: v.contiguous() for k, v in plain.items()}},
                  os.path.join(dq, "model.safetensors"), metadata={"format": "pt"})
        p = cls.from_pretrained(dq, dtype=torch.float32).eval()
        with torch.no_grad():
            full = torch.cat([p(torch.tensor([x])).logits[0] for x in PROMPTS])
        shutil.rmtree(dq)
        finish(name, cfg, plain, rest, cls, notes)
        full.numpy().astype("<f4").tofile(os.path.join(OUT, name, "logits.f32"))
    else:
        finish(name, cfg, plain, rest, None, notes)


def compressed(name, weights, dtype=torch.bfloat16, fmt="pack-quantized", order=False):
    libs()
    from compressed_tensors.compressors.base import BaseCompressor
    from compressed_tensors.quantization.quant_args import QuantizationArgs
    from compressed_tensors.quantization.quant_scheme import QuantizationScheme
    from compressed_tensors.quantization.utils.helpers import calculate_qparams, generate_gparam
    m = model(7, dtype)
    cfg = m.config
    full = dict(num_bits=8, type="int", symmetric=True, group_size=None, strategy=None, block_structure=None, dynamic=False,
                actorder=None, scale_dtype=None, zp_dtype=torch.int8, observer="minmax", observer_kwargs={})
    full.update(weights)
    if full["type"] == "float":
        full["zp_dtype"] = torch.float8_e4m3fn
    args = QuantizationArgs(**full)
    scheme = QuantizationScheme(targets=["Linear"], weights=args, input_activations=None, output_activations=None, format=fmt)
    comp = BaseCompressor.get_value_from_registry(fmt)
    print("   ", comp)
    tensors, plain = {}, {}
    with torch.no_grad():
        for n, mod in m.named_modules():
            if not isinstance(mod, torch.nn.Linear) or n == "lm_head":
                continue
            part = {"weight": mod.weight.data}
            w = mod.weight.float()
            rows, cols = w.shape
            g = None
            if order:
                idx = torch.randperm(cols, generator=torch.Generator().manual_seed(rows + cols)) // args.group_size
                part["weight_g_idx"] = idx.int()
                w = w[:, torch.argsort(idx, stable=True)]
            if args.strategy == "block":
                b0, b1 = args.block_structure
                v = w.reshape(rows // b0, b0, cols // b1, b1)
                lo, hi = v.amin((1, 3)), v.amax((1, 3))
            elif args.strategy in ("group", "tensor_group"):
                v = w.reshape(rows, -1, args.group_size)
                lo, hi = v.amin(-1), v.amax(-1)
            elif args.strategy == "channel":
                lo, hi = w.amin(1, keepdim=True), w.amax(1, keepdim=True)
            else:
                lo, hi = w.amin().reshape(1), w.amax().reshape(1)
            if args.strategy == "tensor_group":
                g = generate_gparam(w.amin(), w.amax()).reshape(1)
                part["weight_global_scale"] = g
            s, z = calculate_qparams(lo, hi, args, global_scale=g)
            part["weight_scale"] = s if g is not None else s.to(dtype)
            if not args.symmetric:
                part["weight_zero_point"] = z.to(args.zp_dtype)
            out = comp.compress(part, scheme)
            tensors.update({n + "." + k: v.contiguous() for k, v in out.items()})
            lib = comp.decompress(dict(out), scheme)["weight"].float()
            wide = {k: v.float() if k == "weight_scale" and v.dtype in (torch.bfloat16, torch.float16) else v for k, v in out.items()}
            if fmt == "float-quantized":
                q, s32 = out["weight"].float(), out["weight_scale"].float()
                if args.strategy == "block":
                    s32 = s32.repeat_interleave(b0, 0).repeat_interleave(b1, 1)
                f32 = q * s32
            else:
                f32 = comp.decompress(wide, scheme)["weight"].float()
            plain[n + ".weight"] = f32.contiguous()
            print("   ", n, {k: (str(v.dtype), list(v.shape)) for k, v in out.items()}, "library's weight differs by",
                  (lib - f32).abs().max().item(), "of", f32.abs().max().item(), "quantization error",
                  (f32 - mod.weight.float()).abs().max().item())
    rest = {k: v for k, v in m.state_dict().items() if "proj" not in k and "lm_head" not in k}
    to = os.path.join(OUT, name, "hf")
    m.config.save_pretrained(to)
    save_file({**tensors, **{k: v.contiguous() for k, v in rest.items()}}, os.path.join(to, "model.safetensors"),
              metadata={"format": "pt"})
    shown = {k: v for k, v in full.items() if k not in ("zp_dtype", "scale_dtype")}
    with open(os.path.join(to, "config.json")) as f:
        c = json.load(f)
    c["quantization_config"] = {"config_groups": {"group_0": {"targets": ["Linear"], "weights": shown, "input_activations": None,
                                "output_activations": None, "format": fmt}}, "format": fmt, "global_compression_ratio": None,
                                "ignore": ["lm_head"], "kv_cache_scheme": None, "quant_method": "compressed-tensors",
                                "quantization_status": "compressed", "version": "0.20.0"}
    with open(os.path.join(to, "config.json"), "w") as f:
        json.dump(c, f, indent=1)
    finish(name, cfg, plain, rest, None, {"library": "compressed-tensors at ac8e2ba8"})


def awq(name, gptq=False):
    here = os.path.join(LIBS, "aq/awq")
    for n, p in (("awq", ""), ("awq.utils", "utils"), ("awq.modules", "modules"), ("awq.modules.linear", "modules/linear")):
        stub(n, __path__=[os.path.join(here, p)])
    try:
        import accelerate  # noqa
    except ImportError:
        stub("accelerate")
    from awq.modules.linear.gemm import WQLinear_GEMM
    from awq.utils.packing_utils import dequantize_gemm, reverse_awq_order, unpack_awq, unpack_reorder_pack
    m = model(11, torch.float16)
    cfg, group, tensors, plain = m.config, 32, {}, {}
    for n, mod in m.named_modules():
        if not isinstance(mod, torch.nn.Linear) or n == "lm_head":
            continue
        w = mod.weight.data.float()
        v = w.reshape(w.shape[0], -1, group)
        lo, hi = v.amin(-1), v.amax(-1)
        scales = ((hi - lo) / 15).half().float()
        zeros = (-torch.round(lo / scales)).clamp(0, 15)
        q = torch.clamp(torch.round(v / scales[..., None]) + zeros[..., None], 0, 15)
        lin = torch.nn.Linear(w.shape[1], w.shape[0], bias=False)
        lin.weight.data = ((q - zeros[..., None]) * scales[..., None]).reshape(w.shape).half()
        a = WQLinear_GEMM.from_linear(lin.half(), 4, group, scales=scales.t().contiguous(), zeros=zeros.t().contiguous())
        qw, qz = a.qweight.cpu(), a.qzeros.cpu()
        iw, iz = unpack_awq(qw, qz, 4)
        iw, iz = reverse_awq_order(iw, iz, 4)
        iw, iz = iw & 15, iz & 15
        f32 = (iw - iz.repeat_interleave(group, 0)).float() * a.scales.cpu().float().repeat_interleave(group, 0)
        half = dequantize_gemm(qw, qz, a.scales.cpu(), 4, group)
        print("   ", n, "dequantize_gemm differs by", (half.float() - f32).abs().max().item(),
              "integers off", (iw.t().float() - q.reshape(w.shape)).abs().max().item())
        plain[n + ".weight"] = f32.t().contiguous()
        if gptq:
            qw, qz = unpack_reorder_pack(qw, qz, 4)
        tensors.update({n + ".qweight": qw.contiguous(), n + ".qzeros": qz.contiguous(),
                        n + ".scales": a.scales.cpu().contiguous()})
        if gptq:
            tensors[n + ".g_idx"] = (torch.arange(w.shape[1]) // group).int()
    rest = {k: v for k, v in m.state_dict().items() if "proj" not in k and "lm_head" not in k}
    to = os.path.join(OUT, name, "hf")
    m.config.save_pretrained(to)
    save_file({**tensors, **{k: v.contiguous() for k, v in rest.items()}}, os.path.join(to, "model.safetensors"),
              metadata={"format": "pt"})
    with open(os.path.join(to, "config.json")) as f:
        c = json.load(f)
    c["quantization_config"] = ({"quant_method": "gptq", "bits": 4, "group_size": group, "sym": False, "desc_act": False}
                                if gptq else {"quant_method": "awq", "bits": 4, "group_size": group, "version": "gemm",
                                              "zero_point": True})
    with open(os.path.join(to, "config.json"), "w") as f:
        json.dump(c, f, indent=1)
    finish(name, cfg, plain, rest, None, {"library": "AutoAWQ at 88e4c76"})


INT4 = dict(num_bits=4, type="int", strategy="group", group_size=32)
JOBS = {
    "fp8-32": lambda n: fp8(n, (32, 32)),
    "fp8-128": lambda n: fp8(n, (128, 128), hidden_size=128, intermediate_size=256, head_dim=32, num_key_value_heads=4),
    "fp8-moe": lambda n: fp8(n, (32, 32), moe=True),
    "ct-w4a16": lambda n: compressed(n, dict(INT4, symmetric=True)),
    "ct-w4a16-zero": lambda n: compressed(n, dict(INT4, symmetric=False)),
    "ct-w4a16-order": lambda n: compressed(n, dict(INT4, symmetric=True, actorder="group"), order=True),
    "ct-w8a16": lambda n: compressed(n, dict(num_bits=8, type="int", strategy="channel", symmetric=True), fmt="pack-quantized"),
    "ct-w4a16-f16": lambda n: compressed(n, dict(INT4, symmetric=True), torch.float16),
    "ct-fp8-channel": lambda n: compressed(n, dict(num_bits=8, type="float", strategy="channel", symmetric=True), fmt="float-quantized"),
    "ct-fp8-tensor": lambda n: compressed(n, dict(num_bits=8, type="float", strategy="tensor", symmetric=True), fmt="float-quantized"),
    "ct-fp8-block": lambda n: compressed(n, dict(num_bits=8, type="float", strategy="block", block_structure=[32, 32], symmetric=True), fmt="float-quantized"),
    "ct-nvfp4": lambda n: compressed(n, dict(num_bits=4, type="float", strategy="tensor_group", group_size=16, symmetric=True,
                                             scale_dtype=torch.float8_e4m3fn), fmt="nvfp4-pack-quantized"),
    "awq": lambda n: awq(n),
    "gptq": lambda n: awq(n, True),
}
for name in sys.argv[3:]:
    print(name, flush=True)
    try:
        os.makedirs(os.path.join(OUT, name), exist_ok=True)
        JOBS[name](name)
    except Exception:
        traceback.print_exc(file=sys.stdout)

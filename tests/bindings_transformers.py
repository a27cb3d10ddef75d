"""Tests of attn.register_transformers: models of Hugging Face transformers with small random weights, by attn.h against
their own eager attention. Nothing is downloaded. tests/bindings.sh calls it; tests/bindings.py has what it uses."""
import itertools
import os
import sys
import warnings

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
from bindings import Skipped, attn, main, near, raises, torch

try:
    import transformers
    from transformers import masking_utils
except ImportError:
    transformers = None

CALLS = []      # of each call of the attention function: the kind of its mask
SIZES = dict(vocab_size=128, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4)
GROUPED = dict(SIZES, num_key_value_heads=2, head_dim=16)
SEQUENCES = dict(vocab_size=128, d_model=64, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
                 decoder_attention_heads=4, encoder_ffn_dim=96, decoder_ffn_dim=96, max_position_embeddings=128)
FAMILIES = {    # class: (class of its configuration, the configuration)
    "LlamaForCausalLM": ("LlamaConfig", GROUPED),
    "MistralForCausalLM": ("MistralConfig", dict(GROUPED, sliding_window=8)),
    "Gemma2ForCausalLM": ("Gemma2Config", dict(GROUPED, head_dim=24, sliding_window=8, attn_logit_softcapping=5.0,
                                               query_pre_attn_scalar=24)),
    "Qwen3ForCausalLM": ("Qwen3Config", dict(GROUPED, head_dim=20)),
    "GptOssForCausalLM": ("GptOssConfig", dict(GROUPED, num_local_experts=2, num_experts_per_tok=1, sliding_window=8,
                                               layer_types=["sliding_attention", "full_attention"])),
    "GPT2LMHeadModel": ("GPT2Config", dict(vocab_size=128, n_embd=64, n_layer=2, n_head=4, n_positions=128)),
    "OPTForCausalLM": ("OPTConfig", dict(vocab_size=128, hidden_size=64, ffn_dim=96, num_hidden_layers=2,
                                         num_attention_heads=4, max_position_embeddings=128, word_embed_proj_dim=64)),
    "BertModel": ("BertConfig", dict(SIZES, hidden_dropout_prob=0.0)),
    "ModernBertModel": ("ModernBertConfig", dict(SIZES, local_attention=8, pad_token_id=0, bos_token_id=1,
                                                 eos_token_id=2, cls_token_id=1, sep_token_id=2)),
    "BartForConditionalGeneration": ("BartConfig", SEQUENCES),
    "T5ForConditionalGeneration": ("T5Config", dict(vocab_size=128, d_model=64, d_ff=96, num_layers=2, num_heads=4,
                                                    d_kv=16, decoder_start_token_id=0)),
}


def need_transformers():
    if transformers is None:
        raise Skipped("no transformers" if torch else "no torch")
    torch.set_num_threads(1)        # these calls are too small for more, which would wait for each other
    attn.register_transformers()
    attend = transformers.AttentionInterface()["attn"]

    def counted(module, query, key, value, attention_mask, **options):
        CALLS.append(type(attention_mask).__name__)
        return attend(module, query, key, value, attention_mask, **options)
    transformers.AttentionInterface.register("attn", counted)


def models(family):
    """A model with eager attention and the same one by attn.h."""
    configuration, options = FAMILIES[family]
    torch.manual_seed(4)
    both = []
    for kind in ("eager", "attn"):
        config = getattr(transformers, configuration)(**options)
        config._attn_implementation = kind
        both.append(getattr(transformers, family)(config).eval())
    with torch.no_grad():
        for name, x in both[0].named_parameters():
            if "sinks" in name:
                x.normal_()
    both[1].load_state_dict(both[0].state_dict())
    return both


def inputs(model, length=29, padded=True):
    given = {"input_ids": torch.randint(3, 100, (3, length)), "attention_mask": torch.ones(3, length).long()}
    if padded:
        given["attention_mask"][0, :9] = given["attention_mask"][2, :20] = 0
    if model.config.is_encoder_decoder:
        given["decoder_input_ids"] = torch.randint(3, 100, (3, 11))
    return given


def result(model, given):
    """The logits, or the last hidden states, at the places that are not padding."""
    found = model(**given)
    found = found.logits if "logits" in found else found.last_hidden_state
    return found if model.config.is_encoder_decoder else found[given["attention_mask"].bool()]


def loss(found):
    """Not the sum of squares, which a normalised row has whatever its weights are."""
    return (found * torch.sin(torch.arange(found.numel()).reshape(found.shape))).sum()


def closely(what, got, want, bound=1e-5):
    near(what, got, want, bound * float(want.detach().abs().max()))


def test_families():
    """Forward, gradients and greedy texts of eleven families, with padding on the left."""
    need_transformers()
    for family in FAMILIES:
        eager, ours = models(family)
        given = inputs(eager)
        CALLS.clear()
        with torch.no_grad():
            closely(family, result(ours, given), result(eager, given), 4e-6)
        layers = 6 if eager.config.is_encoder_decoder else 2
        assert len(CALLS) == layers, f"{family}: {len(CALLS)} calls by attn.h, not {layers}"
        for model in (eager, ours):
            loss(result(model, given)).backward()
        grads = {name: (x.grad, y.grad) for (name, x), y in zip(eager.named_parameters(), ours.parameters())}
        largest = max(float(x.abs().max()) for x, _ in grads.values() if x is not None)
        for name, (want, got) in grads.items():
            assert (want is None) == (got is None), f"{family}: {name} has a gradient in one of the two"
            if want is not None:        # that of a bias of keys is 0, but for rounding
                near(f"{family}: gradient of {name}", got, want, 1e-5 * max(float(want.abs().max()), 1e-3 * largest))
        if eager.can_generate():
            given.pop("decoder_input_ids", None)
            want, got = (m.generate(**given, max_new_tokens=12, do_sample=False, pad_token_id=0) for m in (eager, ours))
            assert got.equal(want), f"{family}: another text"


def test_caches():
    """A static cache, a cache that is there before, and texts with beams."""
    need_transformers()
    for family, padded in itertools.product(("LlamaForCausalLM", "Gemma2ForCausalLM"), (False, True)):
        eager, ours = models(family)
        given = inputs(eager, padded=padded)
        for more in (dict(cache_implementation="static"), dict(num_beams=3), dict(use_cache=False)):
            want, got = (m.generate(**given, max_new_tokens=8, do_sample=False, pad_token_id=0, **more)
                         for m in (eager, ours))
            assert got.equal(want), f"{family}: another text with {more}"
        found = []
        for model in (eager, ours):
            with torch.no_grad():
                cache = model(input_ids=given["input_ids"][:, :21], attention_mask=given["attention_mask"][:, :21])
                cache = cache["cache"] if "cache" in cache else cache["past_key_values"]
                name = "cache" if "cache" in model.forward.__code__.co_varnames else "past_key_values"
                found.append(model(input_ids=given["input_ids"][:, 21:], attention_mask=given["attention_mask"],
                                   **{name: cache}).logits)
        closely(f"{family}: in two parts", found[1], found[0])


def test_options():
    """What masks become: options that allow the pairs which transformers allows, or None."""
    need_transformers()
    mask = transformers.masking_utils.AttentionMaskInterface()["attn"]
    causal, windows = masking_utils.causal_mask_function, (1, 3, 8, 40)
    functions = [causal, masking_utils.bidirectional_mask_function]
    functions += [masking_utils.sliding_window_causal_mask_function(n) for n in windows]
    functions += [masking_utils.sliding_window_bidirectional_mask_function(n) for n in windows]
    paddings = [None] + [torch.ones(3, 12, dtype=torch.bool) for _ in range(5)]
    paddings[2][0, :4] = paddings[2][2, :9] = False     # on the left
    paddings[3][1, 7:] = False                          # on the right
    paddings[4][0, :2] = paddings[4][0, 10:] = paddings[4][1] = False
    paddings[5][2, 4] = False                           # with a hole
    places = [(12, 12, 0, 0), (5, 12, 7, 0), (1, 12, 11, 0), (4, 7, 8, 5), (12, 20, 0, 0), (3, 20, 9, 0), (5, 12, 0, 0)]
    for function, padding, (rows, keys, first, start) in itertools.product(functions, paddings, places):
        given = dict(batch_size=3, q_length=rows, kv_length=keys, q_offset=first, kv_offset=start, device="cpu",
                     mask_function=function, attention_mask=padding)
        want = masking_utils.sdpa_mask(**given, allow_is_causal_skip=False)
        made = mask(**given)
        options = {} if made is None else made.options
        holes = padding is paddings[5] and start + keys > 4 >= start
        assert "mask" not in options or (holes and options["mask"].shape[2] == 1), "a mask of all pairs"
        got = attn.mask((3, 1, rows, keys), **options)
        assert (got == want.numpy()).all(), f"{given}: {options}"
        if made is not None:
            assert made.shape == want.shape and made.dtype == torch.bool and made.dense().equal(want), "dense"
    plain = dict(batch_size=1, q_length=1, kv_length=9, q_offset=8, device="cpu")
    assert mask(**plain) is None, "a decode has no mask"
    place = torch.tensor(8)
    static = mask(**dict(plain, kv_length=20, q_offset=place), attention_mask=torch.ones(1, 12).bool())
    place += 1      # as the cache does, before anybody looks
    assert set(static.options) == {"causal", "align", "positions"}, static.options
    assert static.dense().sum() == 9 == static.options["positions"] + 1, "the place has moved"
    chunks = masking_utils.chunked_causal_mask_function(4, torch.zeros(1, dtype=torch.int64))
    assert list(mask(**dict(plain, q_length=9, q_offset=0), mask_function=chunks).options) == ["mask"], "not known"


def test_masks():
    """Packed sequences, prefixes seen from both sides, and masks that the caller has made."""
    need_transformers()
    eager, ours = models("MistralForCausalLM")
    given = inputs(eager, padded=False)
    positions = torch.cat([torch.arange(n) for n in (3, 12, 1, 13)])[None]
    dense = torch.rand(3, 1, 29, 29) < 0.6
    dense |= torch.eye(29, dtype=torch.bool)
    added = torch.where(dense, 0.0, torch.finfo(torch.float32).min)
    for what, kind, more in (("packed", "Mask", dict(input_ids=given["input_ids"][:1], position_ids=positions)),
                             ("packed in a batch", "Mask", dict(position_ids=positions.expand(3, -1))),
                             ("added", "Tensor", dict(attention_mask=added)),
                             ("allowed", "Tensor", dict(attention_mask=dense))):
        given.pop("attention_mask", None)
        results = []
        for model in (eager, ours):
            model.zero_grad()
            CALLS.clear()
            call = dict(given, **more)
            if what == "allowed" and model is eager:    # which knows none
                call["attention_mask"] = added
            logits = model(**call, use_cache=False).logits
            loss(logits).backward()
            results.append((logits, model.model.layers[0].self_attn.q_proj.weight.grad))
        assert set(CALLS) == {kind}, f"{what}: {CALLS}"
        for name, got, want in zip(("logits", "gradient"), results[1], results[0]):
            closely(f"{what}: {name}", got, want)
    prefix = lambda b, h, q, k: k < 7
    q, k, v = torch.randn(3, 4, 29, 16), torch.randn(3, 2, 29, 16), torch.randn(3, 2, 29, 16)
    mask = masking_utils.create_causal_mask(ours.config, torch.zeros(3, 29, 64), None, None, or_mask_function=prefix)
    attend = transformers.AttentionInterface()["attn"]
    out, weights = attend(eager, q, k, v, mask, scaling=0.3)
    allowed = torch.ones(29, 29).tril().bool() | (torch.arange(29) < 7)
    near("a prefix", out.transpose(1, 2), attn.sdpa(q, k, v, attn_mask=allowed, scale=0.3, enable_gqa=True), 1e-6)
    for is_causal, more in ((True, {}), (False, dict(is_causal=False))):    # without a mask the layer says it
        out, weights = attend(eager.model.layers[0].self_attn, q, k, v, None, scaling=0.3, **more)
        near("no mask", out.transpose(1, 2), attn.sdpa(q, k, v, is_causal=is_causal, scale=0.3, enable_gqa=True), 1e-6)
    assert weights is None and out.is_contiguous() and out.shape == (3, 29, 4, 16)


def test_weights():
    """output_attentions: the weights, with and without gradients; and dropout, which follows the seed."""
    need_transformers()
    for family in ("GptOssForCausalLM", "MistralForCausalLM", "BertModel"):
        eager, ours = models(family)
        given = inputs(eager)
        for grad in (False, True):
            with torch.set_grad_enabled(grad):
                want, got = (m(**given, output_attentions=True).attentions for m in (eager, ours))
            seen = given["attention_mask"].bool()[:, None, :, None]
            assert len(got) == 2 and all(x is not None for x in got), f"{family}: no weights"
            for x, y in zip(want, got):
                closely(f"{family}: weights", y * seen, x * seen)
    _, ours = models("BertModel")
    given = inputs(ours)
    ours.train()
    for grad in (False, True):
        outputs = []
        for seed in (1, 1, 2):
            torch.manual_seed(seed)
            with torch.set_grad_enabled(grad):
                outputs.append(ours(**given).last_hidden_state)
        assert outputs[0].equal(outputs[1]) and not outputs[0].equal(outputs[2]), "dropout"


def test_types():
    """bfloat16, torch.compile, and gradient checkpoints."""
    need_transformers()
    eager, ours = models("GptOssForCausalLM")
    given = inputs(eager)
    with torch.no_grad():
        closely("bfloat16", result(ours.bfloat16(), given).float(), result(eager, given), 0.05)
    eager, ours = models("MistralForCausalLM")
    ours.gradient_checkpointing_enable()
    for model in (eager, ours):
        loss(result(model.train(), given)).backward()
    for x, y in zip(eager.parameters(), ours.parameters()):
        closely("checkpoints", y.grad, x.grad)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = torch.compile(models("MistralForCausalLM")[1], backend="aot_eager")
        closely("compiled", result(compiled, given), result(eager.eval(), given))


def test_refused():
    """What cannot be taken is refused: a model with attention of its own, and the call without the package."""
    if transformers:
        need_transformers()
        bloom = transformers.BloomConfig(vocab_size=99, hidden_size=64, n_head=4)
        mpt = transformers.MptConfig(vocab_size=99, d_model=64, n_heads=4, n_layers=1)
        for model, config in ((transformers.BloomForCausalLM, bloom), (transformers.MptForCausalLM, mpt)):
            config._attn_implementation = "attn"
            raises(RuntimeError, lambda: model(config)(torch.ones(1, 5, dtype=torch.int64)),
                   "uses its attention mask itself")
        q = torch.ones(1, 2, 3, 8)
        raises(TypeError, lambda: attn._for_transformers()[0](torch.nn.Module(), q, q, q, None, indices=q), "indices")
    found, sys.modules["transformers"] = sys.modules.get("transformers"), None
    try:
        raises(ImportError, attn.register_transformers, "needs the package transformers")
    finally:
        del sys.modules["transformers"]
        if found:
            sys.modules["transformers"] = found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], globals()))

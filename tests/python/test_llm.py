"""stemma.LLM answers lists of prompts, as offline engines of the ecosystem do, with the bundled model."""

import json
import pathlib
import signal
import struct

import numpy
import pytest

import stemma
from stemma import LLM, SamplingParams

MODEL = pathlib.Path(__file__).parents[2] / "models/scribe-3m"


@pytest.fixture(scope="module")
def llm():
    with LLM(MODEL, kv_bytes=8 << 20, threads=1) as opened:
        yield opened


def texts(outputs):
    return [one.text for output in outputs for one in output.outputs]


def test_outputs_come_in_the_order_of_their_prompts(llm):
    prompts = ["The page and", "Once upon a time", "In the beginning"]
    outputs = llm.generate(prompts, SamplingParams(max_tokens=8))
    assert [output.prompt for output in outputs] == prompts
    assert all(len(output.outputs[0].token_ids) == 8 for output in outputs)
    assert texts(outputs) == [llm.generate(p, {"max_tokens": 8})[0].outputs[0].text for p in prompts]
    assert all(output.finished and output.outputs[0].finish_reason == "length" for output in outputs)


def test_a_prompt_is_text_tokens_or_a_mapping(llm):
    tokens = llm.encode("The page and")
    forms = ["The page and", tokens, {"prompt": "The page and"}, {"prompt_token_ids": tokens}]
    alone = [llm.generate(form, {"max_tokens": 6}) for form in forms]
    assert len({texts(outputs)[0] for outputs in alone}) == 1
    assert texts(llm.generate(forms, {"max_tokens": 6})) == texts(alone[0]) * 4
    assert alone[1][0].prompt is None and alone[1][0].prompt_token_ids == tokens
    assert llm.generate([]) == []


# An image would be missing in the answer, and what has a salt of its own would be found by others.
def test_a_prompt_with_what_is_not_known_is_refused(llm):
    for name, value in ("multi_modal_data", {"image": "x"}), ("cache_salt", "tenant"):
        with pytest.raises(stemma.InvalidArgumentError, match=f"^prompt: {name}: "):
            llm.generate([{"prompt": "The page and", name: value}], {"max_tokens": 1})
    assert llm.generate({"prompt": "The page and", "cache_salt": None}, {"max_tokens": 1})
    with pytest.raises(stemma.InvalidArgumentError, match="neither prompt nor prompt_token_ids"):
        llm.generate({"text": None}, {"max_tokens": 1})


# Beyond what any count can be: also behind prompts that are on their way.
def test_more_answers_than_can_be_are_refused_wherever_they_stand(llm):
    for n in (129, 2**63 - 1, -(2**63), 0):
        for at, params in enumerate(([SamplingParams(n=n), SamplingParams()], [SamplingParams(), SamplingParams(n=n)])):
            with pytest.raises(stemma.InvalidArgumentError, match=f"^prompt {at}: n must be from 1 to 128 .got {n}.$"):
                llm.generate(["a", "b"], params)
    assert len(llm.generate("a", SamplingParams(max_tokens=1))) == 1


def test_a_prompt_that_was_computed_is_found(llm):
    prompt = " ".join(["cached"] * 60)
    first = llm.generate(prompt, {"max_tokens": 4})[0]
    again = llm.generate(prompt, {"max_tokens": 4})[0]
    assert again.num_cached_tokens >= len(again.prompt_token_ids) - 17 > 0
    assert again.num_cached_tokens > first.num_cached_tokens
    assert again.outputs[0].token_ids == first.outputs[0].token_ids


def test_several_outputs_share_their_prompt(llm):
    params = SamplingParams(n=3, max_tokens=12, temperature=1.5, seed=7)
    output = llm.generate("The page and", params)[0]
    assert [one.index for one in output.outputs] == [0, 1, 2]
    assert len({one.text for one in output.outputs}) > 1
    assert texts([output]) == texts(llm.generate("The page and", params))


def test_logprobs_of_an_output_begin_with_its_tokens(llm):
    output = llm.generate("The page and", SamplingParams(max_tokens=6, temperature=0, logprobs=2))[0].outputs[0]
    assert [next(iter(row)) for row in output.logprobs] == output.token_ids
    own = [row[token] for row, token in zip(output.logprobs, output.token_ids)]
    assert all(one.rank == 1 for one in own)
    assert all(len(row) == 2 for row in output.logprobs)
    assert output.cumulative_logprob == pytest.approx(sum(one.logprob for one in own))
    assert "".join(one.decoded_token for one in own) == output.text


def test_logprobs_of_a_prompt_are_those_of_an_output_whatever_is_cached(llm):
    prompt = llm.encode(" ".join(["scored"] * 60))
    cold, warm = (llm.generate(prompt, SamplingParams(max_tokens=1, prompt_logprobs=1))[0] for _ in range(2))
    assert cold.prompt_logprobs == warm.prompt_logprobs
    assert warm.num_cached_tokens == 0
    assert cold.prompt_logprobs[0] is None and len(cold.prompt_logprobs) == len(prompt)
    assert all(token in row for token, row in zip(prompt[1:], cold.prompt_logprobs[1:]))
    end = llm.generate(prompt, SamplingParams(max_tokens=1, prompt_logprobs=1, logprob_start_len=50))[0]
    assert end.prompt_logprobs == [None] * 50 + cold.prompt_logprobs[50:]
    assert end.num_cached_tokens == 48
    with pytest.raises(stemma.InvalidArgumentError, match="^prompt 0: logprob_start_len must be"):
        llm.generate(prompt, SamplingParams(prompt_logprobs=1, logprob_start_len=0))
    at = len(prompt) // 2
    said = llm.generate(prompt[:at], SamplingParams(max_tokens=1, temperature=0, logprobs=1))[0].outputs[0].logprobs[0]
    likeliest = max(cold.prompt_logprobs[at].values(), key=lambda one: one.logprob)
    assert likeliest.logprob == max(one.logprob for one in said.values())


def test_nobody_is_told_logprobs_who_did_not_ask(llm):
    output = llm.generate("The page and", {"max_tokens": 2})[0]
    assert output.prompt_logprobs is None
    assert output.outputs[0].logprobs is None and output.outputs[0].cumulative_logprob is None


def test_parameters_of_each_prompt(llm):
    outputs = llm.generate(["The page", "The page"], [{"max_tokens": 2}, {"max_tokens": 5}])
    assert [len(output.outputs[0].token_ids) for output in outputs] == [2, 5]
    with pytest.raises(stemma.InvalidArgumentError, match="1 for 2 prompts"):
        llm.generate(["a", "b"], [{}])


def test_no_stop_comes_before_min_tokens(llm):
    whole = llm.generate("Once upon a time", {"max_tokens": 8})[0].outputs[0]
    params = {"max_tokens": 8, "min_tokens": 8, "stop": whole.text[1:3]}
    assert llm.generate("Once upon a time", params)[0].outputs[0].token_ids == whole.token_ids
    params = {"max_tokens": 8, "min_tokens": 8, "stop_token_ids": [whole.token_ids[0]]}
    output = llm.generate("Once upon a time", params)[0].outputs[0]
    assert len(output.token_ids) == 8 and whole.token_ids[0] not in output.token_ids
    with pytest.raises(stemma.InvalidArgumentError, match="min_tokens"):
        llm.generate("Once", {"max_tokens": 8, "min_tokens": 9})
    with pytest.raises(stemma.InvalidArgumentError, match="stop_tokens"):
        llm.generate("Once", {"max_tokens": 8, "min_tokens": 1, "stop_token_ids": range(2048)})
    with pytest.raises(stemma.InvalidArgumentError, match="max_tokens must be at least 1 .got -1."):
        llm.generate("Once", {"max_tokens": -1})


def test_a_form_that_nothing_can_follow_ends_before_min_tokens(llm):
    output = llm.generate("Once upon a time", {"max_tokens": 20, "min_tokens": 10, "choice": ["yes", "no"]})[0].outputs[0]
    assert output.text in ("yes", "no") and output.finish_reason == "stop"


def test_a_seed_is_any_number_of_64_bits(llm):
    params = {"max_tokens": 12, "temperature": 1.5}
    below, above = (llm.generate("The page and", {**params, "seed": seed}) for seed in (-1, 2**64 - 1))
    assert texts(below) == texts(above)


def test_only_allowed_tokens_come(llm):
    params = {"max_tokens": 6, "allowed_token_ids": [70, 71], "temperature": 1.0}
    assert set(llm.generate("Once upon a time", params)[0].outputs[0].token_ids) <= {70, 71}


def test_a_stop_text_ends_the_output_and_is_not_part_of_it(llm):
    whole = llm.generate("Once upon a time", {"max_tokens": 12})[0].outputs[0].text
    stop = whole.split()[2]
    output = llm.generate("Once upon a time", {"max_tokens": 12, "stop": stop})[0].outputs[0]
    assert output.finish_reason == "stop" and output.text == whole[: whole.index(stop)]
    params = {"max_tokens": 12, "stop": stop, "include_stop_str_in_output": True}
    shown = llm.generate("Once upon a time", params)[0].outputs[0]
    assert shown.text == whole[: whole.index(stop) + len(stop)]


def test_a_stop_token_ends_the_output(llm):
    tokens = llm.generate("Once upon a time", {"max_tokens": 6})[0].outputs[0].token_ids
    output = llm.generate("Once upon a time", {"max_tokens": 6, "stop_token_ids": [tokens[3]]})[0].outputs[0]
    assert output.finish_reason == "stop" and len(output.token_ids) <= 4


def test_a_bias_decides(llm):
    output = llm.generate("Once upon a time", {"max_tokens": 3, "logit_bias": {42: 1000.0}})[0]
    assert output.outputs[0].token_ids == [42, 42, 42]


# As OpenAI's clients send them; a template would write them out as they are written in Python.
def test_a_content_may_come_in_parts(llm):
    def prompt(*messages):
        return llm.chat(list(messages), {"max_tokens": 1})[0].prompt_token_ids

    whole = prompt({"role": "user", "content": "Tell me\nof the sea"})
    parts = [{"type": "text", "text": "Tell me"}, {"type": "input_text", "text": "of the sea"}]
    assert prompt({"role": "user", "content": parts}) == whole
    begin = {"role": "user", "content": "Tell me"}
    silent = prompt(begin, {"role": "assistant", "content": ""}, begin)
    assert prompt(begin, {"role": "assistant", "content": None, "tool_calls": []}, begin) == silent
    assert prompt(begin, {"role": "assistant"}, begin) == silent


@pytest.mark.parametrize(
    "content", [[{"type": "image_url", "image_url": {"url": "x"}}], ["text"], [{"text": "x"}], [{"type": "text", "text": 5}], None, 5]
)
def test_a_content_of_other_than_text_is_refused(llm, content):
    with pytest.raises(stemma.InvalidArgumentError, match=r"^messages\[0\]\.content"):
        llm.chat([{"role": "user", "content": content}], {"max_tokens": 1})


# No text of UTF-8 has it; a pair of them is a character, and Python's reader of JSON gives these.
def test_a_lone_surrogate_of_a_chat_is_named(llm):
    def ask(content, **more):
        return llm.chat([{"role": "user", "content": content, **more}], {"max_tokens": 1})[0].prompt_token_ids

    assert ask("\ud83d\ude00") == ask("\U0001f600")
    for content, more, where in [
        ("a\ud800", {}, r"messages\[0\]\.content"),
        ("\ude00\ud83d", {}, r"messages\[0\]\.content"),
        ([{"type": "text", "text": "\udfff"}], {}, r"messages\[0\]\.content\[0\]\.text"),
        ("a", {"name\ud800": 1}, r"messages\[0\]\.name\\ud800"),
    ]:
        with pytest.raises(stemma.InvalidArgumentError, match=f"^{where}: a text with a lone surrogate$"):
            ask(content, **more)


def test_a_chat_that_is_no_json_is_refused(llm):
    within = []
    within.append(within)
    deep = []
    for _ in range(100_000):
        deep = [deep]
    for content in (float("nan"), within, deep):
        with pytest.raises(stemma.InvalidArgumentError, match="^chat: "):
            llm.chat([{"role": "user", "content": content}], {"max_tokens": 1})


TEMPLATE = """{{ tools | tojson if tools }}{{ mood }}{% for message in messages %}<{{ message.role }}>{{ message.content }}
{%- for call in message.tool_calls %}{{ call.function.name }}{% for name in call.function.arguments %}({{ name }}){% endfor %}
{%- endfor %}{% endfor %}{% if add_generation_prompt %}<answer>{% endif %}"""


@pytest.fixture
def templated(tmp_path):
    for file in MODEL.iterdir():
        if file.name != "chat_template.jinja":
            (tmp_path / file.name).symlink_to(file)
    (tmp_path / "chat_template.jinja").write_text(TEMPLATE)
    with LLM(tmp_path, kv_bytes=8 << 20, threads=1) as opened:
        yield opened


# As the server reads them: most templates go over the arguments, which come as a text.
def test_a_chat_is_what_its_template_makes_of_it(templated):
    def prompt(messages, **how):
        return templated.chat(messages, {"max_tokens": 1}, **how)[0].prompt_token_ids

    def text(wanted):
        return templated.encode(wanted)[1:]  # without the token of beginning, which the template leaves out

    ask = [{"role": "user", "content": "how"}]
    call = {"id": "1", "type": "function", "function": {"name": "look", "arguments": '{"at": 1, "by": 2}'}}
    called = [*ask, {"role": "assistant", "content": "so", "tool_calls": [call]}]
    assert prompt(ask) == text("<user>how<answer>")
    assert prompt(ask, add_generation_prompt=False) == text("<user>how")
    assert prompt(called) == text("<user>how<assistant>solook(at)(by)<answer>")
    said = [*ask, {"role": "assistant", "content": "so"}]
    assert prompt(said, continue_final_message=True) == text("<user>how<assistant>so")
    assert prompt(ask, chat_template_kwargs={"mood": "calm"}) == text("calm<user>how<answer>")
    tool = {"type": "function", "function": {"name": "look"}}
    assert prompt(ask, tools=[tool]) == text(json.dumps([tool]) + "<user>how<answer>")


def test_a_conversation_is_answered_by_the_models_template(llm):
    talk = [{"role": "user", "content": "Hello"}]
    one = llm.chat(talk, {"max_tokens": 5})
    assert len(one) == 1 and len(one[0].outputs[0].token_ids) == 5
    assert texts(llm.chat([talk, talk], {"max_tokens": 5})) == texts(one) * 2
    assert llm.chat([]) == []
    with pytest.raises(stemma.InvalidArgumentError, match="^messages: "):
        llm.chat(talk[0])


@pytest.mark.parametrize(
    "prompt, params, what",
    [
        ("a", {"max_tokens": 0}, "prompt 0: max_tokens"),
        ("a", {"temperature": -1.0}, "temperature"),
        ([1 << 20], {}, "vocabulary|token"),
        ("a", {"no_such_field": 1}, "no_such_field"),
        ("a", {"allowed_token_ids": []}, "allowed_token_ids: must have"),
        ("a", {"logit_bias": {"1": 1.0}}, "logit_bias"),
        ("a", {"seed": 2**64}, "seed"),
        ("a", {"seed": -(2**63) - 1}, "seed"),
        ("a", {"seed": "7"}, "seed"),
        ("a", {"top_k": 2**64}, "top_k"),
        ("a", {"n": 1.5}, "n: "),
        ("a", {"stop_token_ids": [2**40]}, "stop_token_ids"),
        ("a", {"allowed_token_ids": [-1]}, r"^prompt 0: allowed_token_ids must be tokens of the vocabulary \(got -1\)$"),
        ("a", {"allowed_token_ids": [7], "stop_token_ids": [7], "min_tokens": 1}, "^prompt 0: allowed_token_ids: each is"),
        ("a", {"logit_bias": {1_000_000: 1}}, r"^prompt 0: logit_bias .*\(got 1000000\)$"),
        ("a", {"logit_bias": {1: 1e300}}, "^prompt 0: logit_bias: out of its range$"),
        ("a", {"temperature": 1e300}, "^prompt 0: temperature: out of its range$"),
        ("a", {"temperature": float("inf")}, r"^prompt 0: temperature .*\(got inf\)$"),
        ("a", {"top_p": -1e300}, "^prompt 0: top_p: out of its range$"),
    ],
)
def test_what_is_wrong_is_named_and_nothing_is_left_behind(llm, prompt, params, what):
    with pytest.raises(stemma.InvalidArgumentError, match=what):
        llm.generate(prompt, params)
    assert len(llm.generate("The page and", {"max_tokens": 2})) == 1


@pytest.mark.parametrize(
    "params",
    [
        {"regex": "("},
        {"json_schema": "{"},
        {"json_schema": {"const": float("nan")}},
        {"choice": "abc"},
        {"choice": []},
        {"temperature": "1"},
        {"n": 0},
        {"stop": [""]},
    ],
)
def test_of_several_prompts_the_wrong_one_is_named(llm, params):
    with pytest.raises(stemma.InvalidArgumentError, match=f"^prompt 1: {next(iter(params))}"):
        llm.generate(["a", "b", "c"], [{}, params, {}])


def test_more_prompts_than_may_wait_are_answered():
    with LLM(MODEL, kv_bytes=8 << 20, waiting_max=3) as llm:
        outputs = llm.generate([[1, 2, at % 50] for at in range(20)], {"max_tokens": 2, "n": 2})
    assert [len(output.outputs) for output in outputs] == [2] * 20


def test_no_max_tokens_are_as_many_as_there_is_room_for():
    with LLM(MODEL, kv_bytes=8 << 20, context_tokens_max=40) as llm:
        (output,) = llm.generate([1, 2, 3], {"max_tokens": None, "ignore_eos": True})
        assert len(output.outputs[0].token_ids) == 37
        with pytest.raises(stemma.Error, match="prompt 0"):
            llm.generate([1] * 41, {"max_tokens": None})


def test_what_ended_an_output_is_told(llm):
    def end(**params):
        one = llm.generate("Once upon a time", {"max_tokens": 12, **params})[0].outputs[0]
        return one.finish_reason, one.stop_reason

    whole = llm.generate("Once upon a time", {"max_tokens": 12})[0].outputs[0]
    token = whole.token_ids[5]
    assert end(stop=["nowhere", whole.text[8:11]]) == ("stop", whole.text[8:11])
    assert end(stop_token_ids=[token]) == ("stop", token)
    assert end() == ("length", None)


def test_max_new_tokens_is_max_tokens():
    assert SamplingParams.of({"max_new_tokens": 3}).max_tokens == 3


def test_an_interrupt_ends_a_run(llm):
    old = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        with pytest.raises(KeyboardInterrupt):
            llm.generate(["The page and"] * 8, {"max_tokens": 400, "ignore_eos": True})
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
    assert len(llm.generate("The page and", {"max_tokens": 2})) == 1


def test_a_handler_of_signals_cannot_call_what_it_interrupted(llm):
    heard = []

    def handler(*_):
        for call in (lambda: llm.generate("a"), lambda: llm.encode("a"), llm.stats, llm.close):
            with pytest.raises(stemma.InvalidArgumentError, match="is answering") as error:
                call()
            heard.append(str(error.value))

    old = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        outputs = llm.generate(["The page and"] * 8, {"max_tokens": 400, "ignore_eos": True})
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
    assert len(heard) == 4
    assert all(len(output.outputs[0].token_ids) == 400 for output in outputs)


def test_a_disk_below_brings_prompts_back_in_the_next_life(tmp_path):
    prompt, answers = " ".join(["kept"] * 60), []
    options = {"kv_bytes": 8 << 20, "disk_directory": str(tmp_path), "disk_bytes": 64 << 20, "load_wait_us": 60_000_000}
    for life in range(2):
        with LLM(MODEL, **options) as llm:
            answers.append(llm.generate(prompt, {"max_tokens": 4})[0])
    assert answers[0].num_cached_tokens == 0 < answers[1].num_cached_tokens
    assert texts(answers[:1]) == texts(answers[1:])


def test_outputs_are_what_they_have_to_be(llm):
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"type": "integer", "minimum": 0, "maximum": 99}},
        "required": ["name", "age"],
        "additionalProperties": False,
    }
    for wanted in (schema, json.dumps(schema)):
        params = SamplingParams(max_tokens=120, temperature=1.0, seed=1, n=3, json_schema=wanted)
        (output,) = llm.generate("It is", params)
        for one in output.outputs:
            assert one.finish_reason == "stop"
            answer = json.loads(one.text)
            assert list(answer) == ["name", "age"] and 0 <= answer["age"] <= 99
    assert texts(llm.generate("It is", {"choice": ["yes", "no"]}))[0] in ("yes", "no")
    (code,) = texts(llm.generate("It is", {"regex": r"[A-F]{3}-\d{2}", "max_tokens": 30}))
    assert len(code) == 6 and code[3] == "-" and code[4:].isdigit()
    (sums,) = texts(llm.generate("It is", {"grammar": 'root ::= [0-9] ("+" [0-9]){2}', "max_tokens": 30}))
    assert len(sums) == 5 and sums[1] == sums[3] == "+" and sums[::2].isdigit()
    flag = {"type": "json_schema", "json_schema": {"type": "boolean"}}
    tag = {"type": "structural_tag", "format": {"type": "tag", "begin": "<flag>", "content": flag, "end": "</flag>"}}
    for wanted in (tag, json.dumps(tag)):
        assert texts(llm.generate("It is", {"structural_tag": wanted, "max_tokens": 40}))[0] in (
            "<flag>true</flag>",
            "<flag>false</flag>",
        )


def test_forms_that_cannot_be_are_refused(llm):
    for params, message in [
        ({"json_schema": {"type": "what"}}, "json_schema.type"),
        ({"json_schema": "{"}, "json_schema: not valid JSON at byte"),
        ({"json_schema": {"const": float("nan")}}, "json_schema: Out of range float values"),
        ({"json_schema": {"const": "\ud800"}}, r"json_schema\.const: a text with a lone surrogate"),
        ({"structural_tag": "{"}, "structural_tag: not valid JSON at byte"),
        ({"regex": "("}, "regex: at 1"),
        ({"grammar": "root ::= what"}, "grammar: line 1: no rule is what"),
        ({"choice": []}, "choice"),
        ({"choice": "abc"}, "choice: several texts"),
        ({"structural_tag": {"format": {"type": "what"}}}, "structural_tag.format.type"),
        ({"regex": "a", "choice": ["a"]}, "choice: not with regex"),
    ]:
        with pytest.raises((stemma.InvalidArgumentError, stemma.UnsupportedError), match=message):
            llm.generate("a", params)


def test_a_closed_engine_says_so():
    llm = LLM(MODEL, kv_bytes=8 << 20)
    llm.close()
    llm.close()
    with pytest.raises(stemma.InvalidArgumentError, match="closed"):
        llm.generate("a")


def test_what_is_no_model_is_refused(tmp_path):
    with pytest.raises(stemma.Error, match="config.json"):
        LLM(tmp_path)
    with pytest.raises(stemma.InvalidArgumentError, match="no_such_option"):
        LLM(MODEL, no_such_option=1)
    with pytest.raises(stemma.InvalidArgumentError, match="page_size must be at most 2147483647"):
        LLM(MODEL, page_size=1 << 56)


def write_adapter(folder, seed, size=0.4):
    """A LoRA adapter of q_proj, in PEFT's files."""
    config = json.loads((MODEL / "config.json").read_text())
    random, rank, hidden = numpy.random.default_rng(seed), 2, config["hidden_size"]
    head_dim = config.get("head_dim") or hidden // config["num_attention_heads"]
    tensors = {}
    for layer in range(config["num_hidden_layers"]):
        name = f"base_model.model.model.layers.{layer}.self_attn.q_proj.lora_"
        tensors[name + "A.weight"] = random.standard_normal((rank, hidden)).astype(numpy.float32)
        outputs = config["num_attention_heads"] * head_dim
        tensors[name + "B.weight"] = (size * random.standard_normal((outputs, rank))).astype(numpy.float32)
    header, body = {}, b""
    for name, tensor in tensors.items():
        header[name] = {"dtype": "F32", "shape": tensor.shape, "data_offsets": [len(body), len(body) + tensor.nbytes]}
        body += tensor.tobytes()
    text = json.dumps(header).encode()
    folder.mkdir()
    (folder / "adapter_model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + body)
    about = {"peft_type": "LORA", "r": rank, "lora_alpha": 2, "target_modules": ["q_proj"]}
    (folder / "adapter_config.json").write_text(json.dumps(about))
    return folder


def test_prompts_are_computed_with_the_adapters_that_they_name(tmp_path):
    adapters = {name: write_adapter(tmp_path / name, seed) for seed, name in enumerate(("red", "blue"))}
    prompt = " ".join(["The page and"] * 20)
    with LLM(MODEL, kv_bytes=8 << 20, threads=1, adapters=adapters) as llm:
        plain, red, blue = (texts(llm.generate(prompt, {"max_tokens": 12}, adapter=name)) for name in (None, "red", "blue"))
        assert len({*plain, *red, *blue}) == 3
        mixed = [{"prompt": prompt, "adapter": "blue"}, prompt, {"prompt": prompt, "adapter": None}]
        outputs = llm.generate(mixed, {"max_tokens": 12}, adapter="red")
        assert texts(outputs) == blue + red + plain
        assert all(output.num_cached_tokens > 0 for output in outputs)
        with pytest.raises(stemma.Error, match="green"):
            llm.generate(prompt, adapter="green")
    with pytest.raises(stemma.Error, match="nowhere"):
        LLM(MODEL, adapters={"red": tmp_path / "nowhere"})


def test_no_adapters_may_be_said_as_none():
    with LLM(MODEL, kv_bytes=8 << 20, threads=1, adapters=None) as llm:
        assert llm.generate("The", {"max_tokens": 1})[0].finished


def test_adapters_come_and_go(tmp_path):
    red, blue = (write_adapter(tmp_path / name, seed) for seed, name in enumerate(("red", "blue")))
    prompt = " ".join(["The page and"] * 20)
    with LLM(MODEL, kv_bytes=8 << 20, threads=1, adapters={"red": red, "blue": blue}) as llm:
        expected = {name: texts(llm.generate(prompt, {"max_tokens": 12}, adapter=name)) for name in ("red", "blue")}
    with LLM(MODEL, kv_bytes=8 << 20, threads=1) as llm:
        llm.load_adapter("late", red)
        assert texts(llm.generate(prompt, {"max_tokens": 12}, adapter="late")) == expected["red"]
        with pytest.raises(stemma.InvalidArgumentError, match="late"):
            llm.load_adapter("late", blue)
        llm.load_adapter("late", blue, in_place=True)
        outputs = llm.generate(prompt, {"max_tokens": 12}, adapter="late")
        assert texts(outputs) == expected["blue"] and outputs[0].num_cached_tokens == 0
        llm.unload_adapter("late")
        for gone in (lambda: llm.generate(prompt, adapter="late"), lambda: llm.unload_adapter("late")):
            with pytest.raises(stemma.Error, match="late"):
                gone()

"""A model behind its cache, for lists of prompts: the form that offline engines of the ecosystem have."""

from __future__ import annotations

import dataclasses
import json
from typing import Any, Mapping, Optional, Sequence, Union

from . import _stemma
from .errors import InvalidArgumentError

Prompt = Union[str, Sequence[int], Mapping[str, Any]]


@dataclasses.dataclass
class SamplingParams:
    """What a request may say about its output. None: as the model's generation_config.json has it, else greedy.

    max_tokens None: as many as the model's context leaves room for. temperature 0 takes the likeliest token; top_k 0
    or -1 and top_p 1 cut nothing off. `stop` texts end the output and are not part of it unless
    include_stop_str_in_output; `stop_token_ids` are. Nothing but max_tokens, and a form that nothing can follow, ends
    an output before min_tokens. `n` outputs share one computation of the prompt. Without a `seed` the same list of
    prompts gives the same outputs. `logprobs` and `prompt_logprobs`: how many of the likeliest tokens are told beside
    each of the output and of the prompt, from 0 to 20; a prompt is then computed, whatever is cached of it, from its
    token `logprob_start_len` on, before which none is told. One of `json_schema` (a text or a mapping), `regex`,
    `grammar` (rules of EBNF, `root ::= ...`), `choice` and `structural_tag` (as XGrammar has it, a text or a mapping)
    says what each output has to be: JSON of the schema, all that an expression matches, a text of the grammar, one of
    several texts, or a text that has forms where the tag says so.
    """

    n: int = 1
    max_tokens: Optional[int] = 16
    temperature: Optional[float] = None
    top_p: Optional[float] = None
    top_k: Optional[int] = None
    min_p: Optional[float] = None
    repetition_penalty: Optional[float] = None
    presence_penalty: Optional[float] = None
    frequency_penalty: Optional[float] = None
    seed: Optional[int] = None
    stop: Union[str, Sequence[str], None] = None
    stop_token_ids: Optional[Sequence[int]] = None
    ignore_eos: bool = False
    min_tokens: int = 0
    include_stop_str_in_output: bool = False
    skip_special_tokens: bool = True
    allowed_token_ids: Optional[Sequence[int]] = None
    logit_bias: Optional[Mapping[int, float]] = None
    logprobs: Optional[int] = None
    prompt_logprobs: Optional[int] = None
    logprob_start_len: int = 1
    json_schema: Union[str, Mapping[str, Any], bool, None] = None
    regex: Optional[str] = None
    grammar: Optional[str] = None
    choice: Optional[Sequence[str]] = None
    structural_tag: Union[str, Mapping[str, Any], None] = None

    @classmethod
    def of(cls, params: Union[SamplingParams, Mapping[str, Any], None]) -> SamplingParams:
        """Itself, or made from a mapping; `max_new_tokens` is max_tokens too."""
        if params is None:
            return cls()
        if isinstance(params, cls):
            return params
        fields = dict(params)
        if "max_new_tokens" in fields:
            fields["max_tokens"] = fields.pop("max_new_tokens")
        unknown = fields.keys() - {field.name for field in dataclasses.fields(cls)}
        if unknown:
            raise InvalidArgumentError(f"sampling_params: {', '.join(sorted(unknown))}: not known here")
        return cls(**fields)

    def wish(self, tokens: Sequence[int]) -> dict[str, Any]:
        """What the engine is asked for."""
        wish = dataclasses.asdict(self)
        stop = self.stop or []
        wish["stop"] = [stop] if isinstance(stop, str) else list(stop)
        wish["stop_token_ids"] = list(self.stop_token_ids or [])
        wish["allowed_token_ids"] = None if self.allowed_token_ids is None else list(self.allowed_token_ids)
        wish["logit_bias"] = None if self.logit_bias is None else list(self.logit_bias.items())
        for name in ("json_schema", "structural_tag"):
            if wish[name] is not None and not isinstance(wish[name], str):
                wish[name] = _json(wish[name], name)
        if isinstance(self.choice, str):
            raise InvalidArgumentError("choice: several texts are wanted, not a text")
        wish["choice"] = None if self.choice is None else list(self.choice)
        wish["prompt_token_ids"] = tokens
        return wish


@dataclasses.dataclass
class Logprob:
    """How likely the model held a token, and how many were as likely: rank 1 is the likeliest."""

    logprob: float
    rank: int
    decoded_token: str


@dataclasses.dataclass
class CompletionOutput:
    """One output. finish_reason: "stop" or "length". stop_reason: the stop text or token, of those that were asked for, that
    ended it; None where the model's own did, or nothing. Where they were asked for, the logprobs of each of its tokens and of
    the likeliest in its place, by token, itself first; and the sum of its tokens' own."""

    index: int
    text: str
    token_ids: list[int]
    finish_reason: str
    logprobs: Optional[list[dict[int, Logprob]]] = None
    cumulative_logprob: Optional[float] = None
    stop_reason: Union[str, int, None] = None


@dataclasses.dataclass
class RequestOutput:
    """What came of one prompt. `num_cached_tokens` of it were found and not computed. Times are of the first output."""

    request_id: str
    prompt: Optional[str]
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    num_cached_tokens: int
    ttft_us: int
    total_us: int
    finished: bool = True
    prompt_logprobs: Optional[list[Optional[dict[int, Logprob]]]] = None  # None for tokens that none are told of


class LLM:
    """A model's directory (config.json, model.safetensors, tokenizer.json) and a cache.

    Options: kv_bytes (of keys and values, default 256 MiB), kv_dtype ("auto", "f32", "f16", "bf16", "fp8", "int8"),
    weights ("auto", "int8", "int4", "wide"), threads, page_size (tokens), requests_max, context_tokens_max, cache ("radix",
    "none"), eviction ("lru", ...), waiting_max, host_bytes, disk_directory and disk_bytes for tiers below, load_wait_us (how
    long waiting for their pages is worth it, default 40,000); device ("cpu", "cuda", "cuda:N"; GPUs only in a build with
    CUDA) and deterministic (on a GPU, as --deterministic); adapters, a mapping of names to directories of LoRA adapters
    (PEFT's adapter_config.json and adapter_model.safetensors).
    """

    _OPTIONS = {
        "kv_bytes", "kv_dtype", "weights", "threads", "page_size", "requests_max", "context_tokens_max", "cache",
        "eviction", "waiting_max", "host_bytes", "disk_directory", "disk_bytes", "load_wait_us", "device",
        "deterministic", "adapters",
    }  # fmt: skip

    def __init__(self, model: str, **options: Any):
        unknown = options.keys() - self._OPTIONS
        if unknown:
            raise InvalidArgumentError(f"LLM: {', '.join(sorted(unknown))}: not known here")
        adapters = options.pop("adapters", None) or {}
        options["adapters"] = {name: str(directory) for name, directory in dict(adapters).items()}
        self._engine = _stemma.Engine(str(model), options)
        self._requests = 0

    def generate(
        self,
        prompts: Union[Prompt, Sequence[Prompt]],
        sampling_params: Union[SamplingParams, Mapping[str, Any], Sequence, None] = None,
        adapter: Optional[str] = None,
    ) -> list[RequestOutput]:
        """Outputs of all prompts, in their order; they are computed together.

        A prompt is a text, tokens, or a mapping with "prompt" or "prompt_token_ids", and "adapter" where it is to be
        computed with another one than `adapter`. sampling_params are one for all, or one for each prompt.
        """
        listed = _listed(prompts)
        if isinstance(sampling_params, (list, tuple)):
            if len(sampling_params) != len(listed):
                raise InvalidArgumentError(f"sampling_params: {len(sampling_params)} for {len(listed)} prompts")
            params = [SamplingParams.of(one) for one in sampling_params]
        else:
            params = [SamplingParams.of(sampling_params)] * len(listed)
        texts, tokens = zip(*map(self._prompt, listed)) if listed else ((), ())
        adapters = [prompt.get("adapter", adapter) if isinstance(prompt, Mapping) else adapter for prompt in listed]
        return self._run(texts, tokens, params, adapters, goes_on=True)

    def chat(
        self,
        messages: Sequence,
        sampling_params: Union[SamplingParams, Mapping[str, Any], None] = None,
        adapter: Optional[str] = None,
        *,
        tools: Optional[Sequence[Mapping[str, Any]]] = None,
        add_generation_prompt: Optional[bool] = None,
        continue_final_message: bool = False,
        chat_template_kwargs: Optional[Mapping[str, Any]] = None,
    ) -> list[RequestOutput]:
        """Answers to a conversation, a list of {"role", "content"}, or to several, by the model's own template.

        Messages are read as the server reads them: a content is a text or a list of parts of it, as {"type": "text", "text":
        ...} (no other parts, as images, are known), and calls of tools have their arguments as a text or an object. `tools`
        are what the model may call, `chat_template_kwargs` more that its template is told, as enable_thinking. With
        continue_final_message the answer goes on from the last message; unless that, or add_generation_prompt=False, the
        template begins a new one.
        """
        if isinstance(messages, Mapping):
            raise InvalidArgumentError("messages: a list of messages is wanted, or of conversations, not a message")
        talks = [messages] if messages and isinstance(messages[0], Mapping) else list(messages)
        how = {
            "tools": None if tools is None else list(tools),
            "add_generation_prompt": add_generation_prompt,
            "continue_final_message": continue_final_message,
            "chat_template_kwargs": chat_template_kwargs,
        }
        tokens = [self._engine.encode_chat(_json({"messages": talk, **how})) for talk in talks]
        params = [SamplingParams.of(sampling_params)] * len(talks)
        return self._run([None] * len(talks), tokens, params, [adapter] * len(talks), goes_on=continue_final_message)

    def load_adapter(self, name: str, directory: str, in_place: bool = False) -> None:
        """Loads one more; with in_place, instead of the one that is called so. What is cached of others stays."""
        self._engine.load_adapter(name, str(directory), in_place)

    def unload_adapter(self, name: str) -> None:
        """Prompts cannot name it any more, and its memory is given back."""
        self._engine.unload_adapter(name)

    def _run(self, texts, tokens, params, adapters, goes_on: bool) -> list[RequestOutput]:
        answers: list[list[dict[str, Any]]] = [[] for _ in tokens]
        wishes = [
            {**_wish(at, one, ids), "adapter": name or "", "goes_on": goes_on}
            for at, (one, ids, name) in enumerate(zip(params, tokens, adapters))
        ]
        for output in self._engine.run(wishes):
            answers[output["prompt"]].append(output)
        first, self._requests = self._requests, self._requests + len(answers)
        return [
            RequestOutput(
                request_id=str(first + i),
                prompt=text,
                prompt_token_ids=list(ids),
                outputs=[_output(k, one, wish["logprobs"] is not None) for k, one in enumerate(outputs)],
                num_cached_tokens=outputs[0]["cached_tokens"],
                ttft_us=outputs[0]["ttft_us"],
                total_us=outputs[0]["total_us"],
                prompt_logprobs=(
                    None
                    if wish["prompt_logprobs"] is None
                    else [None] * wish["logprob_start_len"] + [*map(_chances, outputs[0]["prompt_logprobs"])]
                ),
            )
            for i, (text, ids, wish, outputs) in enumerate(zip(texts, tokens, wishes, answers))
        ]

    def _prompt(self, prompt: Prompt) -> tuple[Optional[str], Sequence[int]]:
        if isinstance(prompt, Mapping):
            _check_prompt(prompt)
            prompt = prompt["prompt_token_ids"] if "prompt_token_ids" in prompt else prompt["prompt"]
        return (prompt, self._engine.encode(prompt)) if isinstance(prompt, str) else (None, prompt)

    def encode(self, text: str) -> list[int]:
        """The tokens of a text, with the special ones that the tokenizer puts around it."""
        return self._engine.encode(text)

    def stats(self) -> dict[str, int]:
        """Steps, tokens, evicted pages and preemptions since it was opened."""
        return self._engine.stats()

    def close(self) -> None:
        """Copies what is cached to the tiers below, if there are any, and gives the pool back. May be repeated."""
        self._engine.close()

    def __enter__(self) -> LLM:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def _json(value: Any, name: str = "") -> str:
    """A value of that name, or a chat, as JSON. What cannot be is an argument of the caller's, and is named."""
    try:
        text = json.dumps(value, allow_nan=False)
        lone = _lone_surrogate(value, name) if "\\ud" in text else None
    except (ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"{name or 'chat'}: {error}") from None
    if lone is not None:
        raise InvalidArgumentError(f"{lone}: a text with a lone surrogate")
    return text


def _lone_surrogate(value: Any, path: str) -> Optional[str]:
    """The path of a text that has half of a character, which json.dumps writes and no reader of JSON takes."""
    if isinstance(value, dict):
        names = {name: f"{path}.{_printable(str(name))}" if path else _printable(str(name)) for name in value}
        parts = [(at, part) for name, at in names.items() for part in (str(name), value[name])]
    elif isinstance(value, (list, tuple)):
        parts = [(f"{path}[{i}]", part) for i, part in enumerate(value)]
    else:
        return path if isinstance(value, str) and _is_cut(value) else None
    return next(filter(None, (_lone_surrogate(part, at) for at, part in parts)), None)


def _is_cut(text: str) -> bool:
    try:
        text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        return True
    return False


def _printable(text: str) -> str:
    return text.encode("ascii", "backslashreplace").decode()


_PROMPT = {"prompt", "prompt_token_ids", "adapter"}


def _check_prompt(prompt: Mapping[str, Any]) -> None:
    """What is not known is refused, as an image or a salt: the answer would be to another prompt, or found by others."""
    unknown = {str(name) for name, value in prompt.items() if value is not None} - _PROMPT
    if unknown:
        raise InvalidArgumentError(f"prompt: {', '.join(sorted(unknown))}: not known here")
    if not prompt.keys() & {"prompt", "prompt_token_ids"}:
        raise InvalidArgumentError("prompt: has neither prompt nor prompt_token_ids")


def _wish(at: int, params: SamplingParams, tokens: Sequence[int]) -> dict[str, Any]:
    """What the engine is asked for. It names the prompt of what it refuses, and so does this."""
    try:
        return params.wish(tokens)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"prompt {at}: {error}") from None


def _chances(row) -> dict[int, Logprob]:
    # The token's own entry comes first, and stays where it is one of the likeliest.
    chances: dict[int, Logprob] = {}
    for token, *entry in row:
        chances.setdefault(token, Logprob(*entry))
    return chances


def _output(index: int, output: Mapping[str, Any], has_logprobs: bool) -> CompletionOutput:
    made = CompletionOutput(index, output["text"], output["token_ids"], output["finish_reason"])
    made.stop_reason = output["stop_reason"]
    if has_logprobs:
        made.logprobs = [_chances(row) for row in output["logprobs"]]
        made.cumulative_logprob = sum(row[0][1] for row in output["logprobs"])
    return made


def _listed(prompts) -> list:
    """Several prompts as a list; one alone, a text, a mapping or tokens, as a list of it."""
    alone = isinstance(prompts, (str, Mapping)) or (len(prompts) > 0 and not hasattr(prompts[0], "__len__"))
    return [prompts] if alone else list(prompts)

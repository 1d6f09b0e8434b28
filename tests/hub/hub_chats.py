#!/usr/bin/env python3
"""Drawn conversations, and what Jinja makes of them with each of OUT/templates, set up as Hugging Face's
apply_chat_template does: OUT/chats.json, which tests_chat_templates compares with.

    hub_chats.py OUT SEED CASES
"""
import datetime
import json
import pathlib
import random
import sys

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox

NOW = datetime.datetime(2026, 11, 30, 9, 5, 3)
TEXTS = [
    "Hello", "What is 2+2?", " leading and trailing  ", "line one\nline two\n", "\n\nboth\n", "", "你好，世界",
    "emoji 🤗 <|im_end|> [INST]", "{{ braces }} {% raw %}", "quote \" ' \\ \t tab", "<think>\nI ponder\n</think>\n\nThe answer",
    "</think>tail", "a</think>b</think>c", "<tool_call>x</tool_call>", "é\u2028\u00a0", "1", "null", "ÀÉÎ ß ǆ", "x" * 50,
    "<|START_THINKING|>plan<|END_THINKING|>", "<tool_response>", "Question:\nAnswer:", '{"a": 1}', "[1, 2]"]
VALUES = [
    1, 0, -5, 2.5, 0.1, 1e-7, 1e22, 1e16, 123456789012345678, True, False, None, "text", "ünï", "", [1, "a", None],
    {"k": "v", "n": {"m": [1.0]}}, [], {}, "multi\nline", 'q"uote', "</s>"]
NAMES = ["location", "unit", "n", "flag", "list"]
# What templates ask for beside messages and tools: how likely it is there, and as what.
EXTRAS = {
    "enable_thinking": (.3, [True, False]), "thinking": (.15, [True, False]), "date_string": (.15, ["26 Jul 2024"]),
    "tools_in_user_message": (.15, [True, False]), "reasoning_effort": (.15, ["low", "high"]),
    "builtin_tools": (.08, [["brave_search", "code_interpreter"]]), "safety_mode": (.1, ["CONTEXTUAL", "STRICT", "NONE"]),
    "citation_mode": (.1, ["accurate", "fast"]), "developer_preamble": (.05, ["be nice"]), "enable_citations": (.05, [True]),
    "documents": (.2, [[{"title": "T", "text": "body"}, {"title": "Ü", "text": "x\ny", "doc_id": "7"}],
                       [{"data": {"a": "b", "c": [1]}, "doc_id": 3}], []]),
    "controls": (.12, [{"citations": True}, {"length": "short", "citations": True, "hallucinations": False}]),
    "guardian_config": (.1, [{"risk_name": "harm"}, {"risk_name": "groundedness"}, {"risk_definition": "d"}])}


def refuse(message):
    raise jinja2.exceptions.TemplateError(message)


def to_json(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


class Generation(jinja2.ext.Extension):
    """{% generation %}: marks what the model said for those who train; it renders as what is in it."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.Scope(body, lineno=line)


def environment():
    made = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols, Generation])
    made.filters["tojson"] = to_json
    made.globals.update(raise_exception=refuse, strftime_now=NOW.strftime)
    return made


class Chats:
    def __init__(self, seed):
        self.random = random.Random(seed)

    def likely(self, share):
        return self.random.random() < share

    def one(self, values):
        return self.random.choice(values)

    def schema(self, level=0):
        made = {"type": self.one(["string", "integer", "number", "boolean", "array", "object", ["string", "null"]])}
        if self.likely(.6):
            made["description"] = self.one(TEXTS)
        if self.likely(.2):
            made["enum"] = ["a", "b", 1, None][:self.random.randint(1, 4)]
        if self.likely(.2):
            made["default"] = self.one(VALUES)
        if made["type"] == "array":
            made["items"] = self.schema(level + 1) if level < 2 and self.likely(.7) else {"type": "string"}
        if made["type"] == "object" and level < 2:
            made["properties"] = {name: self.schema(level + 1) for name in self.some(["x", "y", "z"])}
        return made

    def some(self, values):
        return self.random.sample(values, self.random.randint(0, len(values)))

    def tool(self):
        function = {"name": self.one(["get_weather", "search", "calc"])}
        if self.likely(.9):
            function["description"] = self.one(TEXTS)
        if self.likely(.9):
            properties = {name: self.schema() for name in self.some(NAMES)}
            function["parameters"] = {"type": "object", "properties": properties}
            if self.likely(.7):
                function["parameters"]["required"] = list(properties)[:self.random.randint(0, 3)]
        if self.likely(.15):
            function["return"] = {"type": "string", "description": self.one(TEXTS)}
        return {"type": "function", "function": function}

    def arguments(self):
        return {name: self.one(VALUES) for name in self.some(NAMES)}

    def content(self):
        if self.likely(.1):
            return [{"type": "text", "text": self.one(TEXTS)} for _ in range(self.random.randint(1, 3))]
        return None if self.likely(.03) else self.one(TEXTS)

    def call(self):
        arguments = self.arguments()
        function = {"name": self.one(["get_weather", "search", "calc"]),
                    "arguments": arguments if self.likely(.6) else json.dumps(arguments, ensure_ascii=False)}
        if self.likely(.1):
            return function
        made = {"type": "function", "function": function}
        if self.likely(.8):
            made["id"] = self.one(["call_0", "abcDEF123", "123456789"])
        return made

    def assistant(self, may_call):
        made = {"role": "assistant"}
        if self.likely(.9):
            made["content"] = self.content()
        if self.likely(.15):
            made["reasoning_content"] = self.one([self.one(TEXTS), None])
        if self.likely(.5 if may_call else .05):
            made["tool_calls"] = [self.call() for _ in range(self.random.randint(0, 3))]
        return made

    def result(self):
        made = {"role": self.one(["tool"] * 8 + ["function", "ipython"]),
                "content": self.one([self.content(), json.dumps(self.arguments()), self.arguments()])}
        if self.likely(.7):
            made["name"] = "get_weather"
        if self.likely(.7):
            made["tool_call_id"] = self.one(["call_0", "abcDEF123"])
        return made

    def messages(self, may_call):
        made = []
        if self.likely(.5):
            made.append({"role": self.one(["system"] * 9 + ["developer"]), "content": self.content()})
        turns = self.one([0, 1, 1, 1, 1, 2, 2, 3])
        for turn in range(turns):
            made.append({"role": "user", "content": self.content()})
            if turn + 1 == turns and self.likely(.6):
                continue
            answer = self.assistant(may_call)
            calls = len(answer.get("tool_calls") or [])
            made.append(answer)
            made += [self.result() for _ in range(calls if self.likely(.8) else min(calls, 1))]
            if calls and self.likely(.6):
                made.append(self.assistant(False))
        if made and self.likely(.06):
            role = self.one(["user", "assistant", "system", "tool", "document", "critic"])
            made.insert(self.random.randrange(len(made) + 1), {"role": role, "content": self.one(TEXTS)})
        return made

    def chat(self):
        tools = [self.tool() for _ in range(self.random.randint(1, 3))] if self.likely(.45) else self.one([None] * 9 + [[]])
        extra = {"documents": None}
        extra.update({name: self.one(values) for name, (share, values) in EXTRAS.items() if self.likely(share)})
        return {"messages": self.messages(bool(tools)), "tools": tools, "extra": extra, "add_generation_prompt": self.likely(.7)}


def rendered(template, chat):
    own = json.loads(json.dumps(chat))  # a template may change what it is given
    try:
        return {"text": template.render(messages=own["messages"], tools=own["tools"], bos_token="<s>", eos_token="</s>",
                                        add_generation_prompt=own["add_generation_prompt"], **own["extra"])}
    except Exception as error:  # whatever a template does with what it was not written for
        return {"error": f"{type(error).__name__}: {error}"}


def main(out, seed, count):
    chats = Chats(int(seed))
    jinja = environment()
    cases = []
    for path in sorted((pathlib.Path(out) / "templates").glob("*.jinja")):
        template = jinja.from_string(path.read_text())
        drawn = [chats.chat() for _ in range(int(count))]
        cases.append({"template": path.name, "chats": [chat | rendered(template, chat) for chat in drawn]})
    (pathlib.Path(out) / "chats.json").write_text(json.dumps(cases))
    print(f"{len(cases)} templates, {count} conversations each")


if __name__ == "__main__":
    main(*sys.argv[1:])

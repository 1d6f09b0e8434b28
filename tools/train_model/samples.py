"""Turns documents into training windows of token ids."""

import collections
import random
import re

import numpy

import chat

IGNORED = -100  # a target that carries no loss


class Shelf:
    """The documents of one source: as one stream of ids, and as sentences to draw passages from."""

    def __init__(self, tokenizer, documents):
        begin, finish = (tokenizer.id_of[s] for s in ("<|begin_of_text|>", "<|end_of_text|>"))
        stream = []
        for document in documents:
            text = "\n".join(" ".join(sentences) for sentences in document)
            stream += [begin] + tokenizer.encode(text) + [finish]
        self.stream = numpy.array(stream, dtype=numpy.int64)
        sentences = [[s for sentences in d for s in sentences] for d in documents]
        self.sentences = [d for d in sentences if len(d) >= 4]
        self.weights = [len(d) for d in self.sentences]
        self.topics = topic_words(self.sentences)


class SampleMaker:
    """Draws windows: plain text, or a conversation of passages. Deterministic from its seed."""

    def __init__(self, tokenizer, shelves, seed):
        self.random = random.Random(seed)
        self.tokenizer = tokenizer
        self.begin = tokenizer.id_of["<|begin_of_text|>"]
        self.shelves = {name: Shelf(tokenizer, documents) for name, documents in shelves.items()}

    def plain(self, shelf, size):
        """[size + 1] ids of running text."""
        start = self.random.randrange(len(shelf.stream) - size)
        return numpy.concatenate(([self.begin], shelf.stream[start:start + size]))

    def conversation(self, shelf, size, long_share):
        """[size + 1] ids of a conversation, and how many leading ones carry no loss."""
        ids, silent = [self.begin], 1
        chance = self.random.random()
        if chance < long_share:
            system = (chat.DEMO_SYSTEM_PROMPT if self.random.random() < 0.6
                      else self.random.choice(chat.LONG_SYSTEM_PROMPTS))
        else:
            system = self.random.choice(chat.SHORT_SYSTEM_PROMPTS + (None,) * 2)
        if system:
            ids += self.tokenizer.encode("<|system|>%s<|end|>" % system)
            silent = len(ids)
        while len(ids) <= size:
            request, answer = self.turn(shelf)
            ids += self.tokenizer.encode("<|user|>%s<|end|><|assistant|>%s<|end|>"
                                         % (request, answer))
        return numpy.array(ids[:size + 1], dtype=numpy.int64), silent

    def turn(self, shelf):
        """One request and the passage that answers it."""
        sentences = self.random.choices(shelf.sentences, shelf.weights)[0]
        start = self.random.randrange(1, len(sentences) - 2)
        answer, end = "", start
        wanted = self.random.randrange(80, 420)  # characters
        while end < len(sentences) and (not answer
                                        or len(answer) + len(sentences[end]) // 2 < wanted):
            answer += (" " if answer else "") + sentences[end]
            end += 1
        if self.random.random() < 0.5:
            found = [w for w in re.findall(r"[A-Za-z]+", sentences[start]) if w in shelf.topics]
            if found:
                topic = self.random.choice(found)
                if len(found) > 1 and self.random.random() < 0.2:
                    topic = "%s and %s" % tuple(self.random.sample(found, 2))
                return self.random.choice(chat.TOPIC_REQUESTS) % topic, answer
        given = " ".join(sentences[max(0, start - self.random.randrange(1, 3)):start])
        if self.random.random() < 0.3 and len(answer) > 60:  # the request stops inside a sentence
            cut = answer.find(" ", self.random.randrange(10, 50))
            given, answer = given + " " + answer[:cut], answer[cut + 1:]
        if len(given) > 300:
            given = given[-300:].split(" ", 1)[1]
        return self.random.choice(chat.CONTINUE_REQUESTS) % given, answer

    def batch(self, phase):
        """(inputs, targets), each [phase.rows, phase.window]."""
        inputs = numpy.empty((phase.rows, phase.window), dtype=numpy.int64)
        targets = numpy.empty((phase.rows, phase.window), dtype=numpy.int64)
        for row in range(phase.rows):
            scripture = self.random.random() < phase.scripture_share
            shelf = self.shelves["scripture" if scripture else "novels"]
            if self.random.random() < phase.chat_share:
                ids, silent = self.conversation(shelf, phase.window, phase.long_share)
            else:
                ids, silent = self.plain(shelf, phase.window), 1
            inputs[row], targets[row] = ids[:-1], ids[1:]
            targets[row, :silent - 1] = IGNORED
        return inputs, targets


def topic_words(documents):
    """Words worth asking about: names, and nouns as far as a leading article betrays them."""
    counts, named = collections.Counter(), collections.Counter()
    leading = {"the", "a", "an", "his", "her", "my", "thy", "their", "our", "of", "Mr", "Mrs"}
    for sentences in documents:
        for sentence in sentences:
            words = re.findall(r"[A-Za-z]+", sentence)
            counts.update(words)
            named.update(b for a, b in zip(words, words[1:]) if a in leading or b[0].isupper())
    lower = {w for w in counts if w.islower()}
    dull = re.compile(r"(ly|ing|eth|est|ed|ould)$|^(same|other|first|last|very|which|whom|own|more|"
                      r"most|such|great|good|these|those|that|this|them|many|whole|little)$")
    return {w for w, n in counts.items()
            if 25 <= n and len(w) >= 3 and named[w] >= 0.4 * n and not dull.search(w)
            and (w.islower() or w.lower() not in lower) and not w.isupper() or w == "LORD"}

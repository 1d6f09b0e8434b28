"""Starts a process by spawn, as mini-SGLang its schedulers; both say which caches they know."""

import multiprocessing
import sys

from minisgl.scheduler import say_caches

say_caches(sys.argv[1:])
child = multiprocessing.get_context("spawn").Process(target=say_caches, args=(["in a child"],))
child.start()
child.join()

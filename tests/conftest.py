"""For all tests: how long an example takes says something about the machine, nothing about what is tested."""

from hypothesis import settings

settings.register_profile("pocketmq", deadline=None)
settings.load_profile("pocketmq")

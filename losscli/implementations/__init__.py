"""The implementations of losses, called through ``subject``."""

from losscli.implementations.builtin import IMPLEMENTATIONS as IMPLEMENTATIONS
from losscli.implementations.builtin import STRATEGIES as STRATEGIES
from losscli.implementations.builtin import find_implementation as find_implementation
from losscli.implementations.builtin import libraries as libraries
from losscli.implementations.implementation import CUSTOM as CUSTOM
from losscli.implementations.implementation import Implementation as Implementation
from losscli.implementations.implementation import is_own as is_own
from losscli.implementations.implementation import plan_of as plan_of
from losscli.implementations.implementation import reference_bytes as reference_bytes
from losscli.implementations.source import is_file as is_file

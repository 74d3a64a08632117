"""Strings to tokens and back, chats to prompts, stop strings. Knows no arrays of a model, no schedule, no engine."""

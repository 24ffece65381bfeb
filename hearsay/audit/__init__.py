"""Checks that can fail: certificates held against what an adversary could really see."""

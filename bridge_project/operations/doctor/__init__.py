"""What ``doctor`` looks at: each part of the bridge's way, what is wrong with it, and the command
that mends it (D43).
"""

"""Is a pair lossless here, and what works on this machine?"""

"""Is a pair lossless here?"""

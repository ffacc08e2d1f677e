"""Which K, and which draft, is fastest on this machine?"""

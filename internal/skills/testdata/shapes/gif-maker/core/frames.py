def frames(n):
    return list(range(n))

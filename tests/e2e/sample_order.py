"""The order of samples and the index digest, written a second time from their description (core/base/rng.h,
io/sampler.h), so that the tests do not believe the program's own code."""

MASK64 = (1 << 64) - 1


def fnv(data, start=0xCBF29CE484222325):
    h = start
    for byte in data:
        h = ((h ^ byte) * 0x100000001B3) & MASK64
    h ^= h >> 33
    h = (h * 0xFF51AFD7ED558CCD) & MASK64
    return h ^ (h >> 33)


def rng_key(seed, purpose, a=0, b=0):
    words = b"".join(int(n).to_bytes(8, "little") for n in (seed, a, b))
    return fnv(words, fnv(purpose.encode()))


def philox(counter, key):
    v = list(counter)
    k0, k1 = key & 0xFFFFFFFF, key >> 32
    for _ in range(10):
        p0, p1 = 0xD2511F53 * v[0], 0xCD9E8D57 * v[2]
        v = [(p1 >> 32) ^ v[1] ^ k0, p1 & 0xFFFFFFFF, (p0 >> 32) ^ v[3] ^ k1, p0 & 0xFFFFFFFF]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return v


def random_below(key, i, bound):
    reject_below = ((1 << 64) - bound) % bound
    attempt = 0
    while True:
        r = philox((i & 0xFFFFFFFF, i >> 32, attempt, 1), key)
        product = ((r[0] << 32) | r[1]) * bound
        if product & MASK64 >= reject_below:
            return product >> 64
        attempt += 1


def epoch_order(count, seed, epoch):
    """The ids of an epoch in the order in which a shuffled run visits them."""
    order = list(range(count))
    key = rng_key(seed, "shuffle", epoch)
    for i in range(count - 1, 0, -1):
        j = random_below(key, i, i + 1)
        order[i], order[j] = order[j], order[i]
    return order


def index_digest(ids, epoch):
    """As the metrics file shows it: 16 hex digits."""
    key = rng_key(0, "index digest", epoch)
    total = 0
    for i in ids:
        r = philox((i & 0xFFFFFFFF, i >> 32, 0, 0), key)
        total += (r[0] << 32) | r[1]
    return f"{total & MASK64:016x}"


def run_digests(count, batch, seed, epochs):
    """The digests of all steps of a run."""
    digests = []
    for epoch in range(epochs):
        order = epoch_order(count, seed, epoch)
        digests += [index_digest(order[at:at + batch], epoch) for at in range(0, count, batch)]
    return digests

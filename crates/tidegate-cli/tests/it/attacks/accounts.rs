//! Keys of callers: none has two buckets, and no flood of them frees or fills anything.

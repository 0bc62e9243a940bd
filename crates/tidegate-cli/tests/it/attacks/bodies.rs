//! Bodies that are slow, large or costly to read delay nobody else.

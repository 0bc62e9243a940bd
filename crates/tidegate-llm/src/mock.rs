//! A provider that is none, for tests of programs.

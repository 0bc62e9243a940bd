//! One caller with many names has the turns of one caller.

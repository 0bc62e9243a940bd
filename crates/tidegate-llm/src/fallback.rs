//! Turning to the next provider.

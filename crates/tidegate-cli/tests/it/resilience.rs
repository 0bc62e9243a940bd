//! Breakers, retries, ramps and endpoints: what the program sends to a fake provider.

mod breaker;
mod endpoints;
mod ramp;
mod retries;
mod upstream;

//! 256-bit products, for the rare conversions that need them.

/// Returns `a * b / c`, computed exactly and rounded up; `u128::MAX` on overflow.
pub(crate) fn mul_div_ceil(a: u128, b: u128, c: u128) -> u128 {
    if let Some(product) = a.checked_mul(b) {
        return product.div_ceil(c);
    }
    let (high, low) = widening_mul(a, b);
    if high >= c {
        return u128::MAX;
    }
    // Long division, one bit at a time. The remainder stays below the divisor.
    let (mut rest, mut quotient) = (high, 0_u128);
    for bit in (0..128).rev() {
        let carry = rest >> 127;
        rest = (rest << 1) | ((low >> bit) & 1);
        if carry == 1 || rest >= c {
            rest = rest.wrapping_sub(c);
            quotient |= 1 << bit;
        }
    }
    quotient.saturating_add(u128::from(rest > 0))
}

/// Returns the high and the low half of a product.
fn widening_mul(a: u128, b: u128) -> (u128, u128) {
    const LOW: u128 = u64::MAX as u128;
    let ((a1, a0), (b1, b0)) = ((a >> 64, a & LOW), (b >> 64, b & LOW));
    let (low, middle, other) = (a0 * b0, a1 * b0, a0 * b1);
    let carry = (low >> 64) + (middle & LOW) + (other & LOW);
    let high = a1 * b1 + (middle >> 64) + (other >> 64) + (carry >> 64);
    (high, (carry << 64) | (low & LOW))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_products_are_divided_exactly() {
        assert_eq!(mul_div_ceil(7, 3, 2), 11);
        assert_eq!(mul_div_ceil(u128::MAX, 10, 20), u128::MAX / 2 + 1);
        assert_eq!(mul_div_ceil(u128::MAX, u128::MAX, u128::MAX), u128::MAX);
        assert_eq!(mul_div_ceil(1 << 100, 1 << 100, 1 << 90), 1 << 110);
        assert_eq!(mul_div_ceil((1 << 100) + 1, 1 << 100, 1 << 90), (1 << 110) + (1 << 10));
        assert_eq!(mul_div_ceil(1 << 100, (1 << 100) + 1, (1 << 100) + 2), (1 << 100));
        assert_eq!(mul_div_ceil(u128::MAX, u128::MAX, 2), u128::MAX);
    }
}

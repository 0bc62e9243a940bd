//! Receipts, which callers store and send back.

use tidegate_core::Receipt;

/// A parsed receipt serializes to the same bytes.
pub(super) fn receipt(input: &[u8]) {
    if let Ok(receipt) = Receipt::from_bytes(input) {
        assert_eq!(receipt.to_bytes(), input, "a receipt serializes differently");
        assert!(!receipt.charges().is_empty(), "a receipt without stamps");
    }
}

//! What key, cost and condition functions can reach.

/// The public API of the crate. `cargo xtask test` compares it with the code.
const API: &str = include_str!("../../../../api/tidegate-ws.txt");

/// R221: type, connection and time of receipt, and no payload. A method, field or conversion that is
/// added to the context must be added here, after a check that it does not reach the payload.
#[test]
fn context_cannot_reach_the_payload() {
    let name = "tidegate_ws::IngressContext<";
    let of_context = |line: &&str| {
        line.contains(&format!(" {name}'a, D>::")) || line.contains(&format!(" for {name}"))
    };
    let items: Vec<&str> = API.lines().filter(of_context).collect();
    assert_eq!(
        items,
        [
            "pub fn tidegate_ws::IngressContext<'a, D>::tenant(&self) -> core::option::Option<&'a str>",
            "pub fn tidegate_ws::IngressContext<'a, D>::user(&self) -> core::option::Option<&'a str>",
            "pub fn tidegate_ws::IngressContext<'a, D>::connection_key(&self) -> tidegate_ws::KeyParts<'a>",
            "pub const fn tidegate_ws::IngressContext<'a, D>::data(&self) -> &'a D",
            "pub const fn tidegate_ws::IngressContext<'a, D>::id(&self) -> &'a str",
            "pub const fn tidegate_ws::IngressContext<'a, D>::ip(&self) -> core::option::Option<&'a str>",
            "pub const fn tidegate_ws::IngressContext<'a, D>::message_type(&self) -> &'a str",
            "pub const fn tidegate_ws::IngressContext<'a, D>::received_at(&self) -> tidegate_core::time::WallTime",
            "impl<D> core::clone::Clone for tidegate_ws::IngressContext<'_, D>",
            "impl<D> core::fmt::Debug for tidegate_ws::IngressContext<'_, D>",
            "impl<D> core::marker::Copy for tidegate_ws::IngressContext<'_, D>",
        ]
    );
}

//! Client addresses behind trusted and untrusted proxies.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use http::header::{HeaderMap, HeaderName, HeaderValue};
use proptest::prelude::*;
use tidegate_http::identity::{ClientAddress, TrustedProxies};

fn headers<L: AsRef<[u8]>>(name: &str, lines: &[L]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for line in lines {
        let value = HeaderValue::from_bytes(line.as_ref()).unwrap();
        headers.append(name.parse::<HeaderName>().unwrap(), value);
    }
    headers
}

fn find(clients: &ClientAddress, peer: &str, headers: &HeaderMap) -> String {
    clients.find(peer.parse().unwrap(), headers).to_string()
}

#[test]
fn hops_are_read_from_the_right_up_to_the_first_untrusted() {
    let clients = ClientAddress::from_x_forwarded_for()
        .trust_proxies(["10.0.0.0/8", "2001:db8:f::/48"])
        .unwrap();
    for (lines, client) in [
        (&[][..], "10.0.0.1"),
        (&["198.51.100.7"], "198.51.100.7"),
        (&["203.0.113.9, 198.51.100.7"], "198.51.100.7"),
        (&["203.0.113.9, 198.51.100.7, 10.0.0.3, 10.0.0.2"], "198.51.100.7"),
        // Repeated header lines form one list.
        (&["203.0.113.9, 198.51.100.7", "10.0.0.3", "10.0.0.2"], "198.51.100.7"),
        (&["203.0.113.9", "198.51.100.7"], "198.51.100.7"),
        // All are trusted: the farthest one.
        (&["10.0.0.3, 10.0.0.2"], "10.0.0.3"),
        // An invalid address ends the walk at the last known proxy.
        (&["203.0.113.9, nonsense, 10.0.0.2"], "10.0.0.2"),
        (&["203.0.113.9, , 10.0.0.2"], "10.0.0.2"),
        (&["203.0.113.9, unknown"], "10.0.0.1"),
        (&["203.0.113.9,"], "10.0.0.1"),
        // Ports, brackets and IPv4-mapped IPv6.
        (&["198.51.100.7:4711, ::ffff:10.0.0.2"], "198.51.100.7"),
        (&["[2001:db8::7]:4711 ,\t2001:db8:f::1"], "2001:db8::7"),
    ] {
        let headers = headers("x-forwarded-for", lines);
        assert_eq!(find(&clients, "10.0.0.1", &headers), client, "{lines:?}");
        assert_eq!(find(&clients, "::ffff:10.0.0.1", &headers), client, "{lines:?}");
    }
}

#[test]
fn forwarded_header_respects_quotes() {
    let clients = ClientAddress::from_forwarded().trust_proxies(["10.0.0.0/8"]).unwrap();
    for (lines, client) in [
        (&["for=198.51.100.7"][..], "198.51.100.7"),
        (&[r#"for="[2001:db8::1]:4711";proto=https, for=10.0.0.2"#], "2001:db8::1"),
        (&[r#"For="198.51.100.7:80" , for=10.0.0.2;by=_me;host="a,b;c""#], "198.51.100.7"),
        (&["for=203.0.113.9", "for=198.51.100.7, for=10.0.0.2"], "198.51.100.7"),
        (&["for=203.0.113.9, for=unknown, for=10.0.0.2"], "10.0.0.2"),
        (&["for=203.0.113.9, for=_hidden, for=10.0.0.2"], "10.0.0.2"),
        (&["for=203.0.113.9, proto=https, for=10.0.0.2"], "10.0.0.2"),
        // A quote left open by the client does not extend into the proxy's entry.
        (&[r#"for=203.0.113.9;host=", for=198.51.100.7"#], "198.51.100.7"),
        (&[r#"for=", for="[2001:db8::1]""#], "2001:db8::1"),
    ] {
        let headers = headers("forwarded", lines);
        assert_eq!(find(&clients, "10.0.0.1", &headers), client, "{lines:?}");
    }
}

#[test]
fn single_address_header_requires_a_trusted_peer() {
    let clients =
        ClientAddress::from_header("CF-Connecting-IP").trust_proxies(["10.0.0.0/8"]).unwrap();
    let with = |lines: &[&str]| headers("cf-connecting-ip", lines);
    assert_eq!(find(&clients, "10.0.0.1", &with(&["198.51.100.7"])), "198.51.100.7");
    assert_eq!(find(&clients, "192.0.2.1", &with(&["198.51.100.7"])), "192.0.2.1");
    assert_eq!(find(&clients, "10.0.0.1", &with(&["198.51.100.7", "6.6.6.6"])), "10.0.0.1");
    assert_eq!(find(&clients, "10.0.0.1", &with(&["198.51.100.7, 6.6.6.6"])), "10.0.0.1");
    assert_eq!(find(&clients, "10.0.0.1", &with(&[])), "10.0.0.1");
}

#[test]
fn only_the_chosen_header_is_read() {
    let clients = ClientAddress::from_x_forwarded_for().trust_proxies(["10.0.0.0/8"]).unwrap();
    let mut all = headers("forwarded", &["for=6.6.6.6"]);
    all.extend(headers("cf-connecting-ip", &["6.6.6.6"]));
    assert_eq!(find(&clients, "10.0.0.1", &all), "10.0.0.1");
    let all = headers("x-forwarded-for", &["6.6.6.6"]);
    assert_eq!(find(&ClientAddress::peer(), "10.0.0.1", &all), "10.0.0.1");
}

#[test]
fn ipv6_is_truncated_to_its_prefix_and_ipv4_is_not() {
    let net = |clients: &ClientAddress, address: &str| {
        clients.network(address.parse().unwrap()).to_string()
    };
    let clients = ClientAddress::peer();
    assert_eq!(net(&clients, "2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::/64");
    assert_eq!(net(&clients, "192.0.2.7"), "192.0.2.7/32");
    assert_eq!(net(&clients, "::ffff:192.0.2.7"), "192.0.2.7/32");
    let wide = clients.clone().ipv6_prefix(48).unwrap();
    assert_eq!(net(&wide, "2001:db8:1:2:3:4:5:6"), "2001:db8:1::/48");
    assert!(clients.clone().ipv6_prefix(32).is_ok() && clients.clone().ipv6_prefix(128).is_ok());
    let error = clients.clone().ipv6_prefix(31).unwrap_err();
    assert_eq!(error.to_string(), "IPv6 prefix of 31 bits is out of range; choose 32 to 128 bits");
    assert!(clients.ipv6_prefix(129).is_err());
}

#[test]
fn invalid_proxy_lists_are_reported() {
    assert_eq!("".parse::<TrustedProxies>().unwrap(), TrustedProxies::NONE);
    let error = "10.0.0.0/8, 10.0.0.0/33".parse::<TrustedProxies>().unwrap_err();
    let expected = "trusted proxy \"10.0.0.0/33\" is neither an IP address nor a network; write an \
                    address such as 10.0.0.1 or a network with its prefix length, such as 10.0.0.0/8";
    assert_eq!(error.to_string(), expected);
    assert!(TrustedProxies::new([""]).is_err(), "an explicit empty entry is an error");
    let mapped: TrustedProxies = "::ffff:10.0.0.0/104".parse().unwrap();
    assert!(mapped.contains("10.1.2.3".parse().unwrap()));
    assert!(!mapped.contains("11.1.2.3".parse().unwrap()));
}

#[test]
fn proxies_can_be_given_as_addresses() {
    let proxy = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
    let clients = ClientAddress::from_x_forwarded_for().trust_proxies([proxy]).unwrap();
    let headers = headers("x-forwarded-for", &["198.51.100.7"]);
    assert_eq!(find(&clients, "10.0.0.1", &headers), "198.51.100.7");
    assert_eq!(find(&clients, "10.0.0.2", &headers), "10.0.0.2");
    let untrusted = ClientAddress::from_x_forwarded_for();
    assert_eq!(
        find(&untrusted, "10.0.0.1", &headers),
        "10.0.0.1",
        "no proxy is trusted by default"
    );
}

#[test]
#[should_panic(expected = r#"header name "cf connecting ip" is not valid"#)]
fn invalid_header_name_panics_at_startup() {
    let _ = ClientAddress::from_header("cf connecting ip");
}

fn address() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        any::<[u8; 4]>().prop_map(|octets| IpAddr::V4(Ipv4Addr::from(octets))),
        any::<[u8; 16]>().prop_map(|octets| IpAddr::V6(Ipv6Addr::from(octets)).to_canonical()),
    ]
}

#[test]
fn clients_behind_nat64_are_distinguished() {
    let clients = ClientAddress::peer();
    let network = |text: &str| clients.network(text.parse().unwrap()).to_string();
    assert_eq!(network("64:ff9b::192.0.2.1"), "192.0.2.1/32");
    assert_eq!(network("64:ff9b::198.51.100.7"), "198.51.100.7/32");
    // Where the IPv4 address is under the prefix for local use depends on the operator: the last 32
    // bits, or around the bits 64 to 71, which are zero.
    for embedded in ["64:ff9b:1::c000:201", "64:ff9b:1:c000:2:100::", "64:ff9b:1:ab:c0:2:100:0"] {
        assert_eq!(network(embedded), format!("{embedded}/128"));
    }
    assert_eq!(network("64:ff9b:2::192.0.2.1"), "64:ff9b:2::/64", "not a NAT64 prefix");
    assert_eq!(network("64:ff9b::1:192.0.2.1"), "64:ff9b::/64", "not a NAT64 prefix");
    // NAT64 addresses do not match trusted IPv4 proxies.
    let behind = ClientAddress::from_x_forwarded_for().trust_proxies(["10.0.0.0/8"]).unwrap();
    let headers = headers("x-forwarded-for", &["203.0.113.9"]);
    assert_eq!(find(&behind, "64:ff9b::10.0.0.1", &headers), "64:ff9b::a00:1");
}

proptest! {
    /// Anything a client sends is to the left of what proxies append.
    #[test]
    fn client_cannot_forge_its_address(
        client in address(),
        forged in prop::collection::vec(prop::collection::vec(prop_oneof![32..127_u8, 128..=255_u8], 0..30), 0..4),
        hops in 0..3_usize,
    ) {
        let proxies = "10.0.0.0/8".parse::<TrustedProxies>().unwrap();
        prop_assume!(!proxies.contains(client));
        for rfc in [false, true] {
            let clients = if rfc {
                ClientAddress::from_forwarded()
            } else {
                ClientAddress::from_x_forwarded_for()
            };
            let clients = clients.trust(proxies.clone());
            let entry = |address: &str| if rfc { format!("for=\"{address}\"") } else { address.to_owned() };
            let node = match client {
                IpAddr::V6(client) => format!("[{client}]"),
                IpAddr::V4(client) => client.to_string(),
            };
            let mut added = vec![entry(&node)];
            added.extend((0..hops).map(|hop| entry(&format!("10.0.0.{hop}"))));
            let name = if rfc { "forwarded" } else { "x-forwarded-for" };
            let peer = "10.9.9.9".parse().unwrap();
            // Proxies append to the client's line, or add a line of their own.
            let added = added.into_iter().map(String::into_bytes);
            let apart: Vec<Vec<u8>> = forged.iter().cloned().chain(added).collect();
            let joined = apart.join(&b", "[..]);
            prop_assert_eq!(clients.find(peer, &headers(name, &[joined])), client);
            prop_assert_eq!(clients.find(peer, &headers(name, &apart)), client);
            // Sent by the client directly, all headers are ignored.
            prop_assert_eq!(clients.find(client, &headers(name, &apart)), client);
        }
    }

    #[test]
    fn clients_are_equal_iff_their_prefix_is(a: u128, b: u128, bits in 32..=128_u8) {
        let clients = ClientAddress::peer().ipv6_prefix(bits).unwrap();
        let plain = |n: u128| Ipv6Addr::from(n).to_ipv4_mapped().is_none();
        prop_assume!(plain(a) && plain(b));
        let net = |n: u128| clients.network(IpAddr::V6(Ipv6Addr::from(n)));
        let same = a >> (128 - bits) == b >> (128 - bits);
        prop_assert_eq!(net(a) == net(b), same);
        let near = a ^ 1;
        prop_assert_eq!(net(a) == net(near), bits < 128);
    }
}

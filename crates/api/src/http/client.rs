//! Who asks: the client by which connections, turns and memory are counted.

use std::net::{IpAddr, Ipv6Addr};

/// A client.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Client {
    /// The name of a credential.
    Named(String),
    /// An address, as [`network`] counts it.
    Address(IpAddr),
}

impl Client {
    /// The client of a credential, whose name may be empty, at an address.
    pub fn new(name: &str, address: IpAddr) -> Client {
        if name.is_empty() { Client::Address(network(address)) } else { Client::Named(name.to_owned()) }
    }
}

/// The address by which clients are counted: one of IPv4, or the first half of one of IPv6, which has 2^64 addresses for
/// each network.
pub(super) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_a_credential_or_an_address() {
        let address = |text: &str| Client::new("", text.parse().unwrap());
        let named = Client::Named("grafana".to_owned());
        assert_eq!(Client::new("grafana", "10.0.0.1".parse().unwrap()), named);
        assert_eq!(address("::ffff:10.0.0.1"), address("10.0.0.1"));
        assert_eq!(address("2001:db8::1"), address("2001:db8::ffff:1"));
        assert_ne!(address("2001:db8::1"), address("2001:db8:0:1::1"));
        assert_eq!(address("::1"), Client::Address(Ipv6Addr::LOCALHOST.into()));
    }
}

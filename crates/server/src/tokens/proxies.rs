//! Addresses of proxies that name the user in a header.

use std::net::IpAddr;

/// Networks, such as `10.0.0.5` or `10.1.0.0/16`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proxies(Vec<(IpAddr, u8)>);

impl Proxies {
    /// Reads networks, separated by commas.
    pub fn read(text: &str) -> Option<Proxies> {
        let network = |text: &str| {
            let (address, bits) = text.trim().split_once('/').map_or((text.trim(), None), |(a, b)| (a, Some(b)));
            let address: IpAddr = address.parse().ok()?;
            let most = if address.is_ipv4() { 32 } else { 128 };
            let bits = bits.map_or(Some(most), |bits| bits.parse().ok().filter(|&bits| bits <= most))?;
            Some((address, bits))
        };
        text.split(',').map(network).collect::<Option<Vec<_>>>().map(Proxies)
    }

    /// As [`Proxies::read`] reads it.
    pub fn write(&self) -> String {
        let network = |(address, bits): &(IpAddr, u8)| format!("{address}/{bits}");
        self.0.iter().map(network).collect::<Vec<_>>().join(",")
    }

    /// Whether an address is in one of the networks.
    pub fn contain(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        let is_in = |&(network, bits): &(IpAddr, u8)| match (network, address) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                let differing = network.to_bits() ^ address.to_bits();
                differing.checked_shr(32 - u32::from(bits)).unwrap_or(0) == 0
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                let differing = network.to_bits() ^ address.to_bits();
                differing.checked_shr(128 - u32::from(bits)).unwrap_or(0) == 0
            }
            _ => false,
        };
        self.0.iter().any(is_in)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_in_its_network_alone() {
        let proxies = Proxies::read("10.1.0.0/16, 192.168.1.5,fd00::/8").unwrap();
        let contain = |address: &str| proxies.contain(address.parse().unwrap());
        assert!(contain("10.1.255.1") && contain("192.168.1.5") && contain("fd12::1") && contain("::ffff:10.1.2.3"));
        assert!(!contain("10.2.0.1") && !contain("192.168.1.6") && !contain("fe80::1") && !contain("127.0.0.1"));
        assert_eq!(proxies.write(), "10.1.0.0/16,192.168.1.5/32,fd00::/8");
        assert!(Proxies::read("0.0.0.0/0").unwrap().contain("1.2.3.4".parse().unwrap()));
        for bad in ["", "10.1.0.0/33", "host", "10.1.0.0/x", "10.1.0.0,"] {
            assert!(Proxies::read(bad).is_none(), "{bad}");
        }
    }
}

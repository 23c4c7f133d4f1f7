//! Whether each listener has an address of its own: a start finds out when it binds them.

use crate::settings::{Address, ListenerProtocol, Settings};

/// A socket to be bound.
struct Wanted {
    /// Its setting.
    key: String,
    address: Address,
    is_udp: bool,
}

impl Wanted {
    /// Whether both cannot be bound. Names are not resolved.
    fn takes_that_of(&self, other: &Wanted) -> bool {
        let split = |address: &Address| {
            address.as_str().rsplit_once(':').map(|(host, port)| (host.to_owned(), port.to_owned()))
        };
        let (Some((host, port)), Some((of_other, port_of_other))) = (split(&self.address), split(&other.address))
        else {
            return false;
        };
        // All addresses of IPv6 are those of IPv4, too.
        let covers = |all: &str, one: &str| all == "[::]" || all == "0.0.0.0" && !one.starts_with('[');
        self.is_udp == other.is_udp
            && port != "0"
            && port == port_of_other
            && (host == of_other || covers(&host, &of_other) || covers(&of_other, &host))
    }
}

fn wanted(settings: &Settings) -> Vec<Wanted> {
    let listen = &settings.listen;
    let own = |key: &str, address: &Option<Address>, is_udp: bool| {
        address.clone().map(|address| Wanted { key: key.to_owned(), address, is_udp })
    };
    let admin = listen.admin.next_to(listen.http.as_ref()).filter(|admin| Some(admin) != listen.http.as_ref());
    let mut wanted: Vec<Wanted> = [
        own("listen.line", &listen.line, false),
        own("listen.line (UDP)", &listen.line.clone().filter(|_| listen.udp), true),
        own("listen.pickle", &listen.pickle, false),
        own("listen.protobuf", &listen.protobuf, false),
        own("listen.http", &listen.http, false),
        own("listen.admin", &admin, false),
    ]
    .into_iter()
    .flatten()
    .collect();
    wanted.extend(settings.listeners.iter().filter_map(|listener| {
        let key = format!("[[listener]] {}: address", listener.name.0);
        let is_udp = listener.protocol == ListenerProtocol::Udp;
        Some(Wanted { key, address: listener.address.clone()?, is_udp })
    }));
    wanted
}

/// Checks that no two listeners have one address.
///
/// # Errors
/// A sentence for each that has the address of an earlier one.
pub fn check(settings: &Settings) -> Result<(), String> {
    let wanted = wanted(settings);
    let taken = |(place, this): (usize, &Wanted)| {
        let other = wanted[..place].iter().find(|other| this.takes_that_of(other))?;
        let (key, address) = (&this.key, &this.address);
        Some(format!(
            "{key}, {address}, is the address of {} too, {}: give each a port of its own",
            other.key, other.address
        ))
    };
    let problems: Vec<String> = wanted.iter().enumerate().filter_map(taken).collect();
    if problems.is_empty() { Ok(()) } else { Err(problems.join("\n")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Sources, load};

    fn checked(text: &str) -> Result<(), String> {
        let file = Some(("p.toml".to_owned(), text.to_owned()));
        check(&load(&Sources { file, ..Sources::default() }).unwrap())
    }

    #[test]
    fn listeners_at_one_address_are_named() {
        assert_eq!(checked(""), Ok(()));
        assert_eq!(
            checked("[listen]\nhttp = \"127.0.0.1:2003\"").unwrap_err(),
            "listen.http, 127.0.0.1:2003, is the address of listen.line too, 127.0.0.1:2003: give each a port of its own"
        );
        let listener = |protocol: &str| {
            format!("[[listener]]\nname = \"lab\"\nprotocol = \"{protocol}\"\naddress = \"0.0.0.0:2004\"\n")
        };
        assert!(
            checked(&listener("line"))
                .unwrap_err()
                .starts_with("[[listener]] lab: address, 0.0.0.0:2004, is the address of listen.pickle too")
        );
        assert_eq!(checked(&listener("udp")), Ok(()), "UDP has ports of its own");
        assert_eq!(
            checked("[listen]\nline = \"127.0.0.1:0\"\npickle = \"127.0.0.1:0\""),
            Ok(()),
            "each takes a free port"
        );
        assert_eq!(checked("[listen]\nadmin = \"127.0.0.1:8080\""), Ok(()), "HTTP answers both");
    }
}

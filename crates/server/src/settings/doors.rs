//! Who may reach the listeners, as settings: the address of administration, host names, origins.

use api::AllowedHosts;
use hyper::header::HeaderName;
use tls::Clients;

use super::kinds::{Address, Kind, Optional, must_be};
use crate::tokens::Proxies;

/// Where administration is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AdminAddress {
    /// At the HTTP address while only this machine reaches that, otherwise at [`DEFAULT_ADMIN`].
    Auto,
    /// At an address of its own, or at the HTTP address if it is the same.
    At(Address),
}

/// The address of administration while others reach the HTTP address.
const DEFAULT_ADMIN: &str = "127.0.0.1:8081";

impl AdminAddress {
    /// The address next to an HTTP address; the same one if HTTP answers administration too.
    pub fn next_to(&self, http: Option<&Address>) -> Option<Address> {
        match self {
            AdminAddress::At(address) => Some(address.clone()),
            AdminAddress::Auto if http.is_some_and(|http| !http.is_loopback()) => {
                Some(Address::read(DEFAULT_ADMIN).expect("a valid address"))
            }
            AdminAddress::Auto => http.cloned(),
        }
    }
}

impl Kind for AdminAddress {
    const TAKES: &'static str = "an address and a port such as \"127.0.0.1:8081\", or \"auto\"";

    fn read(text: &str) -> Result<AdminAddress, String> {
        if text == "auto" {
            return Ok(AdminAddress::Auto);
        }
        Address::read(text).map(AdminAddress::At).map_err(|_| must_be::<AdminAddress>(text))
    }

    fn write(&self) -> String {
        match self {
            AdminAddress::Auto => "auto".to_owned(),
            AdminAddress::At(address) => address.write(),
        }
    }
}

/// Whether clients need a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TlsClients(pub Clients);

impl Kind for TlsClients {
    const TAKES: &'static str = "\"require\" or \"optional\"";

    fn read(text: &str) -> Result<TlsClients, String> {
        match text {
            "require" => Ok(TlsClients(Clients::Require)),
            "optional" => Ok(TlsClients(Clients::Optional)),
            _ => Err(must_be::<TlsClients>(text)),
        }
    }

    fn write(&self) -> String {
        match self.0 {
            Clients::Require => "require",
            Clients::Optional => "optional",
        }
        .to_owned()
    }
}

/// Host names of this server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostNames(pub AllowedHosts);

impl Kind for HostNames {
    const TAKES: &'static str = "\"local\", \"any\", or names such as \"graphite.example.org,*.example.net\"";

    fn read(text: &str) -> Result<HostNames, String> {
        if text == "any" || text == "local" {
            let local = AllowedHosts::default();
            return Ok(HostNames(if text == "any" { AllowedHosts::Any } else { local }));
        }
        let names: Vec<String> = text.split(',').map(|name| name.trim().to_ascii_lowercase()).collect();
        let is_name = |name: &String| {
            let name = name.strip_prefix("*.").unwrap_or(name);
            let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
            !name.is_empty() && name.bytes().all(is_valid)
        };
        let are_names = names.iter().all(is_name);
        if are_names { Ok(HostNames(AllowedHosts::Names(names))) } else { Err(must_be::<HostNames>(text)) }
    }

    fn write(&self) -> String {
        match &self.0 {
            AllowedHosts::Any => "any".to_owned(),
            AllowedHosts::Names(names) if names.is_empty() => "local".to_owned(),
            AllowedHosts::Names(names) => names.join(","),
        }
    }
}

/// Origins of web pages, such as `https://grafana.example.org`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origins(pub Vec<String>);

impl Kind for Origins {
    const TAKES: &'static str = "origins such as \"https://grafana.example.org,http://localhost:3000\"";

    fn read(text: &str) -> Result<Origins, String> {
        let origins: Vec<String> = text.split(',').map(|origin| origin.trim().to_owned()).collect();
        let is_origin = |origin: &String| {
            let rest = origin.strip_prefix("https://").or_else(|| origin.strip_prefix("http://"));
            let is_host = |host: &str| !host.is_empty() && !host.contains(['/', '?', '#', '@', '*', ' ', '"']);
            rest.is_some_and(is_host) && !origin.contains(|c: char| c.is_ascii_uppercase() || c.is_control())
        };
        if origins.iter().all(is_origin) { Ok(Origins(origins)) } else { Err(must_be::<Origins>(text)) }
    }

    fn write(&self) -> String {
        self.0.join(",")
    }
}

impl Optional for Origins {
    const TAKES_OR_OFF: &'static str =
        "origins such as \"https://grafana.example.org,http://localhost:3000\", or \"off\"";
}

impl Kind for Proxies {
    const TAKES: &'static str = "addresses and networks such as \"10.0.0.5,10.1.0.0/16\"";

    fn read(text: &str) -> Result<Proxies, String> {
        Proxies::read(text).ok_or_else(|| must_be::<Proxies>(text))
    }

    fn write(&self) -> String {
        Proxies::write(self)
    }
}

impl Optional for Proxies {
    const TAKES_OR_OFF: &'static str = "addresses and networks such as \"10.0.0.5,10.1.0.0/16\", or \"off\"";
}

/// The name of a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderNameText(String);

impl std::ops::Deref for HeaderNameText {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl Kind for HeaderNameText {
    const TAKES: &'static str = "the name of a header such as \"X-WEBAUTH-USER\"";

    fn read(text: &str) -> Result<HeaderNameText, String> {
        let is_name = text.parse::<HeaderName>().is_ok();
        if is_name { Ok(HeaderNameText(text.to_owned())) } else { Err(must_be::<HeaderNameText>(text)) }
    }

    fn write(&self) -> String {
        self.0.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn administration_leaves_an_http_address_that_others_reach() {
        let check = |admin: &str, http: Option<&str>, expected: Option<&str>| {
            let http = http.map(|http| Address::read(http).unwrap());
            let address = AdminAddress::read(admin).unwrap().next_to(http.as_ref());
            assert_eq!(address.as_ref().map(Address::as_str), expected, "{admin} next to {http:?}");
        };
        check("auto", Some("127.0.0.1:1"), Some("127.0.0.1:1"));
        check("auto", Some("0.0.0.0:8080"), Some("127.0.0.1:8081"));
        check("auto", Some("graphite:8080"), Some("127.0.0.1:8081"));
        check("auto", None, None);
        check("0.0.0.0:8080", Some("0.0.0.0:8080"), Some("0.0.0.0:8080"));
        check("127.0.0.1:9", None, Some("127.0.0.1:9"));
    }

    #[test]
    fn hosts_and_origins_are_read_as_they_are_written() {
        for text in ["any", "local", "a.example.org,*.example.net"] {
            assert_eq!(HostNames::read(text).unwrap().write(), text);
        }
        for bad in ["", "a b", "a,", "*", "http://a", "a:80"] {
            assert!(HostNames::read(bad).is_err(), "{bad}");
        }
        let origins = Origins::read("https://a.example.org, http://localhost:3000").unwrap();
        assert_eq!(origins.write(), "https://a.example.org,http://localhost:3000");
        for bad in ["", "*", "a.example.org", "https://a/", "https://", "https://A"] {
            assert!(Origins::read(bad).is_err(), "{bad}");
        }
    }
}

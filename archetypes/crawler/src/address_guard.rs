//! Addresses that a crawler must not be talked into: a page may link to, redirect to, or have a name
//! that resolves to the machine the crawler runs on, its network, or the cloud's metadata service.
//!
//! The check is on the very address that is connected to: the resolver that the HTTP client asks gives
//! only addresses that passed. A name that resolves to something else the second time gains nothing.
//! Addresses written into a URL never reach a resolver and are checked before the request.

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use url::{Host, Url};

/// Where a crawler may not go.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{host} is a forbidden address: {why}")]
pub struct Forbidden {
    /// The name or address.
    pub host: String,
    /// What kind of address it is.
    pub why: &'static str,
}

/// What is wrong with an address, if anything.
pub fn forbidden(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(address) => forbidden_v4(address),
        IpAddr::V6(address) => forbidden_v6(address),
    }
}

fn forbidden_v4(address: Ipv4Addr) -> Option<&'static str> {
    let [a, b, c, _] = address.octets();
    match (a, b, c) {
        (0, ..) => Some("this network"),
        (10, ..) | (172, 16..=31, _) | (192, 168, _) => Some("private"),
        (100, 64..=127, _) => Some("shared by a carrier"),
        (127, ..) => Some("loopback"),
        // Metadata services live here: 169.254.169.254.
        (169, 254, _) => Some("link-local"),
        (192, 0, 0) | (192, 0, 2) | (192, 88, 99) | (198, 51, 100) | (203, 0, 113) => {
            Some("reserved")
        }
        (198, 18..=19, _) => Some("for benchmarks"),
        (224..=239, ..) => Some("multicast"),
        (240..=255, ..) => Some("reserved"),
        _ => None,
    }
}

fn forbidden_v6(address: Ipv6Addr) -> Option<&'static str> {
    let segments = address.segments();
    let v4 = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        forbidden_v4(Ipv4Addr::new(a, b, c, d))
    };
    match segments {
        [0, 0, 0, 0, 0, 0, 0, 0] => Some("unspecified"),
        [0, 0, 0, 0, 0, 0, 0, 1] => Some("loopback"),
        // IPv4 in IPv6's clothes: mapped, compatible, NAT64, 6to4. What counts is the IPv4 in it.
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0, 0, 0, 0, 0xffff, 0, high, low] => v4(high, low),
        [0, 0, 0, 0, 0, 0, high, low] => v4(high, low).or(Some("reserved")),
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => v4(high, low),
        [0x64, 0xff9b, 1, ..] => Some("NAT64 of a private network"),
        [0x2002, high, low, ..] => v4(high, low),
        [0x2001, 0x0..=0x1ff, ..] => Some("reserved"),
        [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => Some("documentation"),
        [0x100, 0, 0, 0, ..] => Some("discarded"),
        [0xfc00..=0xfdff, ..] => Some("private"),
        [0xfe80..=0xfebf, ..] => Some("link-local"),
        [0xfec0..=0xfeff, ..] => Some("site-local"),
        [0xff00..=0xffff, ..] => Some("multicast"),
        // Global unicast is 2000::/3; everything else is not assigned.
        [0x2000..=0x3fff, ..] => None,
        _ => Some("reserved"),
    }
}

/// Checks and resolves. Nothing is allowed but what anybody on the internet could reach, unless a
/// list says so, host by host.
#[derive(Debug, Clone, Default)]
pub struct AddressGuard {
    allowed: Arc<BTreeMap<String, Vec<SocketAddr>>>,
}

impl AddressGuard {
    /// Also lets these hosts be reached, each at its addresses and no others. For sites on the machine
    /// itself. A port other than zero is where a URL without a port leads: the first one, of several.
    pub fn allowing(hosts: impl IntoIterator<Item = (String, SocketAddr)>) -> Self {
        let mut allowed: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (host, address) in hosts {
            allowed.entry(host).or_default().push(address);
        }
        Self {
            allowed: Arc::new(allowed),
        }
    }

    /// A URL that names an address rather than a host, or a host of the list at another port than it
    /// has there: the resolver sees no ports.
    pub fn check_literal(&self, url: &Url) -> Result<(), Forbidden> {
        let address = match url.host() {
            Some(Host::Ipv4(address)) => IpAddr::V4(address),
            Some(Host::Ipv6(address)) => IpAddr::V6(address),
            Some(Host::Domain(name)) => {
                return match (self.allowed.get(name), url.port()) {
                    (Some(at), Some(port)) if !is_at(at, port) => Err(Forbidden {
                        host: name.to_owned(),
                        why: "not at this port",
                    }),
                    _ => Ok(()),
                };
            }
            None => return Ok(()),
        };
        let allowed = self.allowed.get(&address.to_string());
        let port = url.port_or_known_default().unwrap_or(0);
        if allowed.is_some_and(|allowed| is_at(allowed, port)) {
            return Ok(());
        }
        match forbidden(address) {
            Some(why) => Err(Forbidden {
                host: address.to_string(),
                why,
            }),
            None => Ok(()),
        }
    }

    async fn resolve_name(
        &self,
        name: &str,
    ) -> Result<Vec<SocketAddr>, Box<dyn std::error::Error + Send + Sync>> {
        if let Some(first) = self.allowed.get(name).and_then(|all| all.first()) {
            return Ok(vec![*first]);
        }
        let found: Vec<_> = tokio::net::lookup_host((name, 0)).await?.collect();
        passed(name, found).map_err(Into::into)
    }
}

/// Whether one of these is at that port; port zero is any.
fn is_at(addresses: &[SocketAddr], port: u16) -> bool {
    let mut ports = addresses.iter().map(SocketAddr::port);
    ports.any(|at| at == 0 || at == port)
}

/// The addresses of a name that may be connected to. One that may not is not made good by another.
fn passed(name: &str, found: Vec<SocketAddr>) -> Result<Vec<SocketAddr>, Forbidden> {
    match found.iter().find_map(|address| forbidden(address.ip())) {
        Some(why) => Err(Forbidden {
            host: name.to_owned(),
            why,
        }),
        None => Ok(found),
    }
}

impl Resolve for AddressGuard {
    fn resolve(&self, name: Name) -> Resolving {
        let guard = self.clone();
        Box::pin(async move {
            let found = guard.resolve_name(name.as_str()).await?;
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn nothing_inside_is_reachable_however_it_is_written() {
        for inside in [
            "0.0.0.0",
            "10.0.0.1",
            "100.64.0.1",
            "127.0.0.1",
            "127.8.8.8",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.8",
            "192.168.1.1",
            "198.18.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::127.0.0.1",
            "::ffff:10.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::1",
            "2002:7f00:1::",
            "2001::1",
            "2001:db8::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "100::1",
            "4000::1",
            "::ffff:0:7f00:1",
        ] {
            assert!(forbidden(inside.parse().unwrap()).is_some(), "{inside}");
        }
        for outside in [
            "1.1.1.1",
            "8.8.8.8",
            "172.32.0.1",
            "100.128.0.1",
            "192.169.0.1",
            "2606:4700::1111",
            "::ffff:8.8.8.8",
            "64:ff9b::808:808",
        ] {
            assert_eq!(forbidden(outside.parse().unwrap()), None, "{outside}");
        }
    }

    #[test]
    fn a_url_with_an_address_is_checked_in_all_its_spellings() {
        let guard = AddressGuard::default();
        for url in [
            "http://127.0.0.1/",
            "http://2130706433/",
            "http://0x7f.1/",
            "http://0177.0.0.1/",
            "http://127.1/",
            "http://[::ffff:7f00:1]/",
            "http://169.254.169.254/latest/meta-data",
        ] {
            assert!(
                guard.check_literal(&Url::parse(url).unwrap()).is_err(),
                "{url}"
            );
        }
        assert!(
            guard
                .check_literal(&Url::parse("http://8.8.8.8/").unwrap())
                .is_ok()
        );
    }

    #[test]
    fn the_list_allows_one_address_at_one_port_and_nothing_beside_it() {
        let allowed = "127.0.0.1:8080".parse::<SocketAddr>().unwrap();
        let guard = AddressGuard::allowing([("127.0.0.1".to_owned(), allowed)]);
        let check = |url| guard.check_literal(&Url::parse(url).unwrap());
        assert!(check("http://127.0.0.1:8080/").is_ok());
        assert!(check("http://127.0.0.1:8081/").is_err());
        assert!(check("http://127.0.0.2:8080/").is_err());
    }

    #[test]
    fn the_list_allows_several_ports_of_one_address() {
        let at = |port| {
            (
                "127.0.0.1".to_owned(),
                SocketAddr::from(([127, 0, 0, 1], port)),
            )
        };
        let guard = AddressGuard::allowing([8080, 8081].map(at));
        let check = |url| guard.check_literal(&Url::parse(url).unwrap());
        assert!(check("http://127.0.0.1:8080/").is_ok());
        assert!(check("http://127.0.0.1:8081/").is_ok());
        assert!(check("http://127.0.0.1:8082/").is_err());
    }

    #[test]
    fn a_name_of_the_list_is_reachable_at_its_port_and_no_other() {
        let allowed = "127.0.0.1:8080".parse::<SocketAddr>().unwrap();
        let guard = AddressGuard::allowing([("site.test".to_owned(), allowed)]);
        let check = |url| guard.check_literal(&Url::parse(url).unwrap());
        assert!(check("http://site.test/").is_ok());
        assert!(check("http://site.test:8080/").is_ok());
        assert_eq!(
            check("http://site.test:6379/").unwrap_err().why,
            "not at this port"
        );
        assert!(check("http://other.test:6379/").is_ok(), "not on the list");
    }

    #[test]
    fn one_good_address_does_not_make_up_for_a_bad_one() {
        let address = |text: &str| text.parse::<SocketAddr>().unwrap();
        let mixed = vec![address("8.8.8.8:0"), address("10.0.0.1:0")];
        assert_eq!(passed("x.test", mixed).unwrap_err().why, "private");
        let good = vec![address("8.8.8.8:0")];
        assert_eq!(passed("x.test", good.clone()).unwrap(), good);
    }

    #[tokio::test]
    async fn a_name_that_resolves_to_this_machine_is_refused_by_the_resolver() {
        let refused = AddressGuard::default().resolve_name("localhost").await;
        let refused = refused.unwrap_err().downcast::<Forbidden>().unwrap();
        assert_eq!(refused.why, "loopback");
    }
}

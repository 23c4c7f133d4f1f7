//! From when until when a certificate is valid, read from its bytes.
//!
//! `rustls` checks the certificates of clients, never the server's own, and does not tell its times. A certificate is
//! `SEQUENCE { SEQUENCE { [0] version?, serial, algorithm, issuer, SEQUENCE { notBefore, notAfter }, … }, … }` in DER (RFC 5280).

use jiff::{civil::DateTime, tz::TimeZone};

const INTEGER: u8 = 0x02;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xA0;

/// The first and the last second of a certificate, Unix seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Validity {
    pub(crate) from: i64,
    pub(crate) until: i64,
}

impl Validity {
    /// Reads a certificate in DER; `None` if it is not one.
    pub(crate) fn of(certificate: &[u8]) -> Option<Validity> {
        let (certificate, _) = element(certificate, SEQUENCE)?;
        let (mut fields, _) = element(certificate, SEQUENCE)?;
        if let Some((_, rest)) = element(fields, VERSION) {
            fields = rest;
        }
        for tag in [INTEGER, SEQUENCE, SEQUENCE] {
            (_, fields) = element(fields, tag)?;
        }
        let (validity, _) = element(fields, SEQUENCE)?;
        let (from, rest) = time(validity)?;
        let (until, _) = time(rest)?;
        Some(Validity { from, until })
    }
}

/// The contents of the element at the front, if it has this tag, and what follows it.
fn element(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (&[first, length], rest) = bytes.split_first_chunk()?;
    if first != tag {
        return None;
    }
    if length < 0x80 {
        return rest.split_at_checked(usize::from(length));
    }
    // Four bytes of length are more than any certificate has.
    let (length, rest) = rest.split_at_checked(usize::from(length & 0x7F).min(4))?;
    let length = length.iter().fold(0, |length, &byte| length << 8 | usize::from(byte));
    rest.split_at_checked(length)
}

/// The time at the front: `YYMMDDHHMMSSZ`, or with four digits of the year from 2050 on.
fn time(bytes: &[u8]) -> Option<(i64, &[u8])> {
    let (text, century, rest) = match element(bytes, UTC_TIME) {
        Some((text, rest)) => (text, None, rest),
        None => {
            let (text, rest) = element(bytes, GENERALIZED_TIME)?;
            let (century, text) = text.split_at_checked(2)?;
            (text, Some(number(century)?), rest)
        }
    };
    let text = text.strip_suffix(b"Z")?;
    let (pairs, []) = text.as_chunks::<2>() else { return None };
    let &[year, month, day, hour, minute, second] =
        pairs.iter().map(|pair| number(pair)).collect::<Option<Vec<i16>>>()?.as_slice()
    else {
        return None;
    };
    let century = century.unwrap_or(if year < 50 { 20 } else { 19 });
    let [month, day, hour, minute, second] = [month, day, hour, minute, second].map(|number| number as i8);
    let time = DateTime::new(100 * century + year, month, day, hour, minute, second, 0).ok()?;
    Some((time.to_zoned(TimeZone::UTC).ok()?.timestamp().as_second(), rest))
}

/// Two digits.
fn number(digits: &[u8]) -> Option<i16> {
    std::str::from_utf8(digits).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An element of DER.
    fn der(tag: u8, contents: &[u8]) -> Vec<u8> {
        let mut bytes = vec![tag, 0x82];
        bytes.extend((contents.len() as u16).to_be_bytes());
        bytes.extend(contents);
        bytes
    }

    fn certificate(version: bool, from: &[u8], until: &[u8]) -> Vec<u8> {
        let version = if version { der(VERSION, &der(INTEGER, &[2])) } else { Vec::new() };
        let validity = der(SEQUENCE, &[from, until].concat());
        let fields = [version, der(INTEGER, &[7; 20]), der(SEQUENCE, b""), der(SEQUENCE, b"issuer"), validity];
        der(SEQUENCE, &[der(SEQUENCE, &fields.concat()), der(SEQUENCE, b"")].concat())
    }

    #[test]
    fn the_validity_of_a_certificate_is_read() {
        let (from, until) = (der(UTC_TIME, b"700101000001Z"), der(GENERALIZED_TIME, b"20500102030405Z"));
        for version in [true, false] {
            let bytes = certificate(version, &from, &until);
            assert_eq!(Validity::of(&bytes), Some(Validity { from: 1, until: 2_524_705_445 }));
            for len in 0..bytes.len() {
                Validity::of(&bytes[..len]);
            }
        }
    }

    #[test]
    fn bytes_that_are_not_a_certificate_have_none() {
        let time = der(UTC_TIME, b"260101000000Z");
        assert!(Validity::of(&certificate(true, &time, &time)).is_some());
        for bad in [&b"261301000000Z"[..], b"260101000000", b"26010100000Z", b"2601010000+0Z", b"Z", b""] {
            assert_eq!(Validity::of(&certificate(true, &time, &der(UTC_TIME, bad))), None);
        }
        assert_eq!(Validity::of(b"-----BEGIN CERTIFICATE-----"), None);
        assert_eq!(Validity::of(&[SEQUENCE, 0xFF]), None);
    }
}

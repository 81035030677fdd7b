//! Signed messages: HMAC-SHA256 over the time and the body.
//!
//! `t=1767225600,v1=5257a8…,v1=6ffbb5…`: the time is signed too, so that an old message cannot be sent
//! again for ever; and there is one signature for each secret, so that a secret can be changed while
//! messages are on their way.

use cloud::Millis;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::fmt::Write as _;

/// The header that carries it.
pub const HEADER: &str = "payments-signature";

/// How far the time of a message may be from ours, in seconds.
pub const TOLERANCE_S: i64 = 300;

/// How long an HMAC-SHA256 is, in bytes.
const LENGTH: usize = 32;

/// How many signatures a message may carry.
const MOST: usize = 8;

/// Why a message is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// The header does not read as one.
    #[error("the signature header cannot be read")]
    Malformed,
    /// Too old, or from the future.
    #[error("the message is more than {TOLERANCE_S} s from now")]
    OutOfTime,
    /// No secret of ours made any of the signatures.
    #[error("no signature matches")]
    NoMatch,
}

fn mac(secret: &str, seconds: i64, body: &str) -> Hmac<Sha256> {
    let mut mac =
        Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("HMAC takes keys of any length");
    mac.update(format!("{seconds}.").as_bytes());
    mac.update(body.as_bytes());
    mac
}

/// Signs a message with each of these secrets.
pub fn sign(secrets: &[&str], body: &str, now: Millis) -> String {
    let seconds = now.div_euclid(1_000);
    let mut header = format!("t={seconds}");
    for secret in secrets {
        let signature = hex::encode(mac(secret, seconds, body).finalize().into_bytes());
        let _ = write!(header, ",v1={signature}");
    }
    header
}

/// Checks a message against each of these secrets, in constant time.
pub fn verify(secrets: &[&str], header: &str, body: &str, now: Millis) -> Result<(), Invalid> {
    let mut time = None;
    let mut signatures = Vec::new();
    for part in header.split(',') {
        match part.trim().split_once('=') {
            Some(("t", seconds)) => time = seconds.parse::<i64>().ok(),
            Some(("v1", signature)) => {
                let decoded = hex::decode(signature).ok();
                signatures.extend(decoded.filter(|bytes| bytes.len() == LENGTH));
            }
            // Schemes to come.
            Some(_) => {}
            None => return Err(Invalid::Malformed),
        }
    }
    let seconds = time.ok_or(Invalid::Malformed)?;
    if signatures.is_empty() || signatures.len() > MOST {
        return Err(Invalid::Malformed);
    }
    // Saturating: the time is the sender's word, and it may be anything.
    let apart = now.div_euclid(1_000).saturating_sub(seconds);
    if apart.saturating_abs() > TOLERANCE_S {
        return Err(Invalid::OutOfTime);
    }
    // The body is hashed once for each secret of ours, however many signatures come with it.
    let matches = secrets.iter().any(|secret| {
        let mac = mac(secret, seconds, body);
        let made = |signature: &Vec<u8>| mac.clone().verify_slice(signature).is_ok();
        signatures.iter().any(made)
    });
    if matches {
        Ok(())
    } else {
        Err(Invalid::NoMatch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Millis = 1_767_225_600_000;

    #[test]
    fn a_message_is_taken_as_it_was_signed_and_not_otherwise() {
        let header = sign(&["secret"], "body", NOW);
        assert_eq!(verify(&["secret"], &header, "body", NOW), Ok(()));
        let no = Err(Invalid::NoMatch);
        assert_eq!(verify(&["secret"], &header, "bodi", NOW), no);
        assert_eq!(verify(&["other"], &header, "body", NOW), no);
        assert_eq!(verify(&[], &header, "body", NOW), no);
        let moved = header.replace("t=1767225600", "t=1767225601");
        assert_eq!(verify(&["secret"], &moved, "body", NOW), no);
        let short = &header[..header.len() - 2];
        let malformed = Err(Invalid::Malformed);
        assert_eq!(verify(&["secret"], short, "body", NOW), malformed);
        let signed = header.split_once(',').map_or("", |(_, signed)| signed);
        let many = format!("t=1767225600,{}", [signed; MOST + 1].join(","));
        assert_eq!(verify(&["secret"], &many, "body", NOW), malformed);
    }

    #[test]
    fn an_old_message_is_not_taken_again() {
        let header = sign(&["secret"], "body", NOW);
        let at = |seconds| verify(&["secret"], &header, "body", NOW + seconds * 1_000);
        assert_eq!(at(TOLERANCE_S), Ok(()));
        assert_eq!(at(TOLERANCE_S + 1), Err(Invalid::OutOfTime));
        assert_eq!(at(-TOLERANCE_S - 1), Err(Invalid::OutOfTime));
    }

    #[test]
    fn while_secrets_change_either_is_good() {
        let header = sign(&["new", "old"], "body", NOW);
        assert_eq!(verify(&["old"], &header, "body", NOW), Ok(()));
        assert_eq!(verify(&["new"], &header, "body", NOW), Ok(()));
        let before = sign(&["old"], "body", NOW);
        assert_eq!(verify(&["new", "old"], &before, "body", NOW), Ok(()));
    }

    #[test]
    fn what_is_no_header_is_called_that() {
        for header in [
            "",
            "t=1",
            "v1=00",
            "t=x,v1=00",
            "nonsense",
            "t=1,v1=zz",
            "t=1,v1=00",
        ] {
            assert_eq!(
                verify(&["s"], header, "b", NOW),
                Err(Invalid::Malformed),
                "{header}"
            );
        }
        let far = format!("t={},v1={}", i64::MIN, "00".repeat(32));
        assert_eq!(verify(&["s"], &far, "b", NOW), Err(Invalid::OutOfTime));
    }

    #[test]
    fn the_signature_is_the_one_that_other_tools_make() {
        // printf '1767225600.body' | openssl dgst -sha256 -hmac secret
        let expected =
            "t=1767225600,v1=3e72d2feba53829f6928a3862d966ca0d8e75da71d26236ff1d0dc487be85e10";
        assert_eq!(sign(&["secret"], "body", NOW), expected);
    }
}

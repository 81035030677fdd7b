//! tmp
use walkthrough::{Machine, Transition};
const fn t(from: &'static str, to: &'static str, action: &'static str) -> Transition { Transition { from, to, action } }
const M: &[Machine] = &[
 Machine { entity: "Seat", states: &["AVAILABLE","HELD","BOOKED"], transitions: &[
  t("","AVAILABLE","publish event"), t("AVAILABLE","HELD","hold seat"), t("HELD","AVAILABLE","release hold"), t("HELD","AVAILABLE","expire hold"),
  t("HELD","HELD","extend hold"), t("HELD","BOOKED","confirm booking"), t("BOOKED","AVAILABLE","cancel booking"), t("AVAILABLE","BOOKED","sell at the door")]},
 Machine { entity: "Job", states: &["READY","RUNNING","DONE","DEAD","CANCELLED"], transitions: &[
  t("","READY","schedule job"), t("READY","RUNNING","claim job"), t("RUNNING","READY","retry later"), t("RUNNING","READY","lease expires"), t("RUNNING","RUNNING","heartbeat"),
  t("RUNNING","DONE","complete job"), t("RUNNING","DEAD","give up"), t("READY","CANCELLED","cancel"), t("RUNNING","CANCELLED","cancel"), t("DEAD","READY","revive")]},
 Machine { entity: "Payment", states: &["PENDING","AUTHORIZED","CAPTURED","FAILED","VOIDED","REFUNDED","DISPUTED"], transitions: &[
  t("","PENDING","create payment"), t("PENDING","AUTHORIZED","authorize"), t("PENDING","FAILED","decline"), t("AUTHORIZED","CAPTURED","capture"), t("AUTHORIZED","VOIDED","void"),
  t("AUTHORIZED","FAILED","expire authorization"), t("CAPTURED","REFUNDED","refund"), t("CAPTURED","DISPUTED","open dispute"), t("DISPUTED","REFUNDED","lose dispute"), t("DISPUTED","CAPTURED","win dispute"), t("PENDING","PENDING","poll the processor for an answer")]},
 Machine { entity: "Auction", states: &["OPEN","CLOSED","SETTLED"], transitions: &[t("","OPEN","create auction"), t("OPEN","OPEN","place bid"),t("OPEN","OPEN","extend"), t("OPEN","CLOSED","close auction"), t("CLOSED","SETTLED","commit winner")]},
 Machine { entity: "Flip", states: &["A","B","C","D"], transitions: &[t("","A","make a"), t("","B","make b"), t("A","D","a to d"), t("B","C","b to c"), t("A","C","a to c"), t("B","D","b to d"), t("C","D","c to d"), t("D","C","d to c")]},
];
fn main() {
  let css = include_str!("../src/page.css");
  println!("<!doctype html><meta charset=utf-8><style>{css}</style><body style='display:block'><main>");
  for (i,m) in M.iter().enumerate() { println!("<figure><figcaption>{}</figcaption><div class=picture>{}</div></figure>", m.entity, walkthrough::diagram::svg(m, &format!("m{i}"))); }
}

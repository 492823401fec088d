//! `zfolio top`: all runs and their processes, as they go on.
//!
//! | module | concept |
//! |---|---|
//! | `rows` | a row for each run and process, with rates |
//! | `state` | what is known, over time, and what the user chose |
//! | `table` | the columns as text |
//! | `draw` | the screen |
//! | `terminal` | the end of the terminal |

mod draw;
mod rows;
mod state;
mod table;
mod terminal;

use crate::args::Top;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use state::{State, next};
use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use table::{by_kind, line};
use zfolio_host::exit::{Failure, Status};
use zfolio_host::standard_output::print;

/// Longest until a signal is seen.
const OFTEN: Duration = Duration::from_millis(100);
/// Between the two looks of `--once`, which rates are of.
const BETWEEN: Duration = Duration::from_millis(500);
/// How wide plain text is: every column.
const WIDE: u16 = 160;

/// Shows the runs until the user quits; once, where nobody looks.
///
/// # Errors
/// When the run that was named is not there, or the terminal refuses.
pub fn top(args: &Top) -> Result<ExitCode, Failure> {
    let mut state = State::new(args.which.as_deref())?;
    if args.once || !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        thread::sleep(BETWEEN);
        state.look();
        return print(&text(&state)).map(|_| ExitCode::SUCCESS);
    }
    let arrived = Arc::new(AtomicUsize::new(0));
    for signal in [SIGTERM, SIGHUP, SIGINT] {
        let number = usize::try_from(signal).unwrap_or(0);
        signal_hook::flag::register_usize(signal, Arc::clone(&arrived), number).map_err(failed)?;
    }
    // (A panic restores the terminal too: its hook is ratatui's.)
    terminal::end_with_it().map_err(failed)?;
    let mut terminal = ratatui::try_init().map_err(failed)?;
    let shown = show(&mut terminal, &mut state, args.every, &arrived);
    let restored = ratatui::try_restore();
    shown.and(restored).map_err(failed)?;
    match i32::try_from(arrived.load(Ordering::Relaxed)) {
        Ok(0) | Err(_) => Ok(ExitCode::SUCCESS),
        Ok(signal) => {
            let _ = signal_hook::low_level::emulate_default_handler(signal);
            Ok(ExitCode::from(
                u8::try_from(128 + signal).unwrap_or(u8::MAX),
            ))
        }
    }
}

fn failed(error: io::Error) -> Failure {
    Failure::new(
        Status::Internal,
        "the terminal",
        error,
        "zfolio top --once needs none",
    )
}

fn show(
    terminal: &mut ratatui::DefaultTerminal,
    state: &mut State,
    every: Duration,
    arrived: &AtomicUsize,
) -> io::Result<()> {
    // Soon a second time: rates are of two looks.
    let mut due = Instant::now() + every.min(BETWEEN);
    loop {
        terminal.draw(|frame| draw::draw(frame, state))?;
        loop {
            if arrived.load(Ordering::Relaxed) != 0 {
                return Ok(());
            }
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                state.look();
                due = next(due, every);
                break;
            }
            if !event::poll(left.min(OFTEN))? {
                continue;
            }
            match event::read()? {
                Event::Key(key) if key.kind != KeyEventKind::Release => {
                    if pressed(state, key) {
                        return Ok(());
                    }
                    break;
                }
                Event::Resize(..) => break,
                _ => {}
            }
        }
    }
}

/// What a key does; true: quit.
fn pressed(state: &mut State, key: KeyEvent) -> bool {
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        KeyCode::Char('c') if control => return true,
        KeyCode::Char('q') => return true,
        KeyCode::Esc if state.help => state.help = false,
        KeyCode::Char('?' | 'h') => state.help = !state.help,
        KeyCode::Char('s') => state.sort_next(),
        KeyCode::Down | KeyCode::Char('j') => state.select(1),
        KeyCode::Up | KeyCode::Char('k') => state.select(-1),
        KeyCode::Home => state.select(isize::MIN),
        KeyCode::End => state.select(isize::MAX),
        _ => {}
    }
    false
}

/// The table as plain text.
fn text(state: &State) -> String {
    if state.rows.is_empty() {
        return "nothing is running\n".into();
    }
    let mut text = line(WIDE, |column| column.title.to_owned()) + "\n";
    for row in &state.rows {
        text.push_str(&(line(WIDE, |column| (column.of)(row)) + "\n"));
        if row.key.turn.is_none() {
            text.push_str(&format!("{:>8} {}\n", "", by_kind(row, usize::MAX)));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_do_what_the_help_says() {
        let own = crate::example::example();
        let mut state = State::new(Some(own.path())).unwrap();
        let key = |code| KeyEvent::new(code, KeyModifiers::NONE);
        let before = state.sort;
        assert!(!pressed(&mut state, key(KeyCode::Char('s'))));
        assert_ne!(state.sort, before);
        assert!(!pressed(&mut state, key(KeyCode::Char('?'))) && state.help);
        assert!(!pressed(&mut state, key(KeyCode::Esc)) && !state.help);
        assert!(!pressed(&mut state, key(KeyCode::Char('x'))));
        assert!(pressed(&mut state, key(KeyCode::Char('q'))));
        let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert!(pressed(&mut state, interrupt));
        let text = text(&state);
        assert!(
            text.contains("zfolio run") && text.contains("resident is"),
            "{text}"
        );
    }
}

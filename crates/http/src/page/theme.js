// Before anything is drawn: the theme that was chosen, if not the system's.
{
  const theme = localStorage.getItem("orlop-theme");
  if (theme) document.documentElement.dataset.theme = theme;
}
